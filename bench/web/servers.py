"""The servers that are measured, each in a process of its own: onebus, and the least that could do the same work."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.services import OnebusServer
from tests.services.port import is_listened_on
from tests.services.process import Server

HOLD_SECONDS = 600
"""Nobody is to come back in the middle of a round."""


def onebus(store: str) -> OnebusServer:
    """Return `onebus serve`."""
    return OnebusServer(store, "--long-polling-interval", str(HOLD_SECONDS))


class BareServer(Server):
    """A program of `bench.web.bare`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def command(self) -> Sequence[str]:
        return [sys.executable, str(Path(__file__).with_name("bare.py")), self._kind, str(self.port)]

    def is_ready(self) -> bool:
        return is_listened_on(self.port)


def bare_fan_out() -> BareServer:
    """Return a server that holds its connections and writes to all of them what it is sent."""
    return BareServer("fan-out")


def empty_app() -> BareServer:
    """Return the same web server with an application that reads requests and answers ``{"id":1}``."""
    return BareServer("empty")
