"""`onebus broker`, as its users run it."""

import socket
import sys
from collections.abc import Sequence
from contextlib import closing

from tests.services.port import free_port, is_listened_on
from tests.services.process import Server


class BrokerServer(Server):
    """Serves the topics of a store to clients of raintank-queue. `options` are further arguments of the command."""

    def __init__(self, store: str, *options: str) -> None:
        super().__init__()
        self._store = store
        self._options = options
        self.consumers = f"tcp://127.0.0.1:{free_port()}"
        self.publishers = f"tcp://127.0.0.1:{_port_after_a_free_one()}"

    @property
    def management(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "onebus.cli", "broker", "--store", self._store),
            *("--consumers", self.consumers, "--publishers", self.publishers, "--management", self.management),
            *self._options,
        ]

    def is_ready(self) -> bool:
        return is_listened_on(self.port)


def _port_after_a_free_one() -> int:
    while True:
        port = free_port()
        with closing(socket.socket()) as before:
            try:
                before.bind(("127.0.0.1", port - 1))
            except OSError:
                continue
        return port
