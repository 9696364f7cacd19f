"""Many clients of a web server in one process: they are held there, and note when what was published reaches them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

AT_ONCE = 200
"""Connections that are made at the same time."""
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Waiting:
    """What a crowd waits for: so many times the same bytes."""

    marker: bytes
    missing: int
    done: asyncio.Future[None]
    arrivals: list[float] = field(default_factory=list)

    def arrived(self) -> None:
        self.arrivals.append(time.perf_counter())
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)


class Crowd:
    """Clients that send one request each, and stay."""

    def __init__(self, port: int, request_of: Callable[[int], bytes]) -> None:
        self._port = port
        self._request_of = request_of
        self._clients: list[_Client] = []
        self.waiting: Waiting | None = None

    async def come(self, count: int) -> None:
        """Let clients connect and send their request."""
        loop = asyncio.get_running_loop()
        for start in range(0, count, AT_ONCE):
            batch = range(start, min(start + AT_ONCE, count))
            made = await asyncio.gather(
                *(loop.create_connection(lambda: _Client(self), "127.0.0.1", self._port) for _ in batch)
            )
            for number, (transport, client) in zip(batch, made, strict=True):
                transport.write(self._request_of(number))
                self._clients.append(client)

    def expect(self, marker: bytes, count: int) -> Waiting:
        """Begin to wait until so many clients have received some bytes."""
        self.waiting = Waiting(marker, count, asyncio.get_running_loop().create_future())
        return self.waiting

    async def have(self, waiting: Waiting) -> list[float]:
        """Return when the bytes reached each client."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await waiting.done
        return waiting.arrivals

    async def go(self) -> None:
        """Let all clients go away."""
        for client in self._clients:
            client.leave()
        self._clients.clear()
        await asyncio.sleep(0)


class _Client(asyncio.Protocol):
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiting = self._crowd.waiting
        if waiting is not None and waiting.marker in data:
            waiting.arrived()

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()
