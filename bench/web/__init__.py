"""The web door beside bare servers: fan-out, held clients, and requests."""
