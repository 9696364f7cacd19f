"""Topics and the broker: beside bare sockets, Redis Streams and NATS JetStream."""
