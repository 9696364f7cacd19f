"""Queues over HTTP: workers in any language take messages, and come back to say that they are done."""
