"""The raw ceiling of each server, and the ordinary ways to use it as a queue."""
