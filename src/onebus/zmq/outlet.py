"""The socket through which a broker sends messages to its consumers; nothing is dropped on the way into it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from onebus.zmq.burst import BurstSocket

MAX_WAITING_MESSAGES: Final = 100
"""For each consumer; a consumer that reads too slowly leaves the rest in the store."""
STUCK_SECONDS: Final = 30.0
"""A consumer that has taken nothing for so long, though something waits for it, is cut off: it holds up its rooms."""
_SUBSCRIBED: Final = b"\x01"


class Outlet:
    """Sends to rooms, and knows how many listen in each."""

    def __init__(
        self, socket: "zmq.Socket[bytes]", subscribed: Callable[[str], None], *, stuck_seconds: float = STUCK_SECONDS
    ) -> None:
        """`socket` is an XPUB that is not bound yet."""
        socket.setsockopt(zmq.SNDHWM, MAX_WAITING_MESSAGES)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        # Tell of everybody who comes and goes, and not only of the first and the last.
        socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        # Heartbeats would cut off those too who read slowly, because their answer waits behind what they have not read.
        socket.setsockopt(zmq.TCP_MAXRT, round(stuck_seconds * 1000))
        self._socket = BurstSocket(socket)
        self._subscribed = subscribed
        self._listeners: Counter[str] = Counter()

    def close(self) -> None:
        self._socket.close()

    def listeners(self, room: str) -> int:
        """Return how many have subscribed to exactly this room."""
        return self._listeners[room]

    async def listen(self) -> None:
        """Follow who subscribes to what, for ever."""
        while True:
            for (frame,) in await self._socket.receive():
                self._hear(frame[:1] == _SUBSCRIBED, frame[1:].decode(errors="replace"))

    def _hear(self, is_coming: bool, room: str) -> None:
        if is_coming:
            self._listeners[room] += 1
            self._subscribed(room)
        else:
            self._listeners[room] -= 1
            if self._listeners[room] <= 0:
                del self._listeners[room]

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send a message, and return False if somebody who should get it has no room for it."""
        try:
            self._socket.send(frames)
        except zmq.Again:
            return False
        return True
