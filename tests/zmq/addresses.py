"""Addresses for a broker that nobody else uses."""

from typing import Any

from tests.services.port import free_port


class Addresses:
    def __init__(self) -> None:
        self.consumer = f"tcp://127.0.0.1:{free_port()}"
        self.publisher = f"tcp://127.0.0.1:{free_port()}"
        self.receipts = f"tcp://127.0.0.1:{free_port()}"
        self.management = f"http://127.0.0.1:{free_port()}"

    @property
    def of_broker(self) -> dict[str, Any]:
        """The arguments of a broker in a test."""
        return {
            "consumer_socket_addr": self.consumer,
            "publisher_socket_addr": self.publisher,
            "receipt_socket_addr": self.receipts,
            "mgmt_url": self.management,
            "flush_interval": 0.01,
        }
