"""Topics: logs cut into partitions, which groups of consumers share."""
