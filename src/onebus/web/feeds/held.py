"""Who is being held at the moment: how many there may be, and one poll for each client."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from onebus.errors import BusError
from onebus.web.feeds.listener import Listener
from onebus.web.feeds.visitor import Visitor


class TooManyClients(BusError):
    """As many clients are held as may be; come back later."""

    code = "too_many_clients"
    retryable = True


@dataclass(slots=True)
class _Poll:
    sequence: int
    listener: Listener


class Held:
    """All clients that are being held, over all transports."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._listeners: dict[Listener, str] = {}
        self._polls: dict[tuple[str | None, str], _Poll] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def has_room_for(self, visitor: Visitor) -> bool:
        """Return whether a poll can be held; one that replaces another poll of its client can be."""
        return len(self) < self._limit or _key(visitor) in self._polls

    def by_transport(self) -> dict[str, int]:
        """Return how many there are of each transport."""
        transports = list(self._listeners.values())
        return {name: transports.count(name) for name in sorted(set(transports))}

    def listeners(self) -> list[Listener]:
        return list(self._listeners)

    @contextmanager
    def hold(self, listener: Listener, transport: str) -> Iterator[None]:
        """Count a client while it is held.

        Raises:
            TooManyClients: there are as many as there may be.
        """
        if len(self) >= self._limit:
            raise TooManyClients(f"{self._limit} clients are held already. Come back later.")
        self._listeners[listener] = transport
        try:
            yield
        finally:
            self._listeners.pop(listener, None)

    @contextmanager
    def only_poll(self, listener: Listener, sequence: int) -> Iterator[bool]:
        """Hold one poll for a client: the one with the highest number, of equal ones the newest.

        It yields whether that is this one; another one is ended, and its place is free.
        """
        key = _key(listener.visitor)
        other = self._polls.get(key)
        if other is not None and other.sequence > sequence:
            yield False
            return
        if other is not None:
            other.listener.end()
            self._listeners.pop(other.listener, None)
        mine = self._polls[key] = _Poll(sequence, listener)
        try:
            yield True
        finally:
            if self._polls.get(key) is mine:
                del self._polls[key]

    def end_all(self) -> None:
        """Let all clients have what they wait for as far as it is there, and no more."""
        for listener in self.listeners():
            listener.end()


def _key(visitor: Visitor) -> tuple[str | None, str]:
    return visitor.site_id, visitor.client_id
