"""A ZeroMQ socket in an event loop, of which all that has come is taken in one go.

A task or a future for each message would take longer than the message itself.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import zmq

MAX_BURST: Final = 1000
"""How many messages are taken before others have their turn."""

# Plain numbers: the arithmetic of enumerations would take as long as to send a frame.
_AT_ONCE: Final = int(zmq.DONTWAIT)
_MORE_FOLLOWS: Final = int(zmq.DONTWAIT | zmq.SNDMORE)


class BurstSocket:
    """Owns a socket. Sending never waits, and receiving waits for the first message only."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._descriptor = socket.fileno()
        self._news: asyncio.Future[None] | None = None
        self._is_looking = False
        self._loop.add_reader(self._descriptor, self._look)

    def close(self) -> None:
        """Close the socket; whoever waits for messages is cancelled. May be called twice."""
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close(linger=0)
            if self._news is not None:
                self._news.cancel()

    async def receive(self) -> list[list[bytes]]:
        """Return all messages that have come, as their frames: at least one message."""
        burst = self._take()
        if burst:
            await asyncio.sleep(0)
        while not burst:
            self._news = self._loop.create_future()
            await self._news
            burst = self._take()
        return burst

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message.

        Raises:
            zmq.Again: there is no room for it.
        """
        *first, last = frames
        try:
            for frame in first:
                self._socket.send(frame, _MORE_FOLLOWS)
            self._socket.send(last, _AT_ONCE)
        finally:
            # The descriptor tells of each event once, and sending may have swallowed it.
            if not self._is_looking:
                self._is_looking = True
                self._loop.call_soon(self._look)

    def _take(self) -> list[list[bytes]]:
        burst: list[list[bytes]] = []
        with suppress(zmq.Again):
            while len(burst) < MAX_BURST:
                burst.append(self._socket.recv_multipart(_AT_ONCE))
        return burst

    def _look(self) -> None:
        self._is_looking = False
        news = self._news
        if news is not None and not news.done() and not self._socket.closed and self._socket.poll(0):
            news.set_result(None)
