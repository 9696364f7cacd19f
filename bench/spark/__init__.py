"""Spark reads and writes the bus."""
