"""A client that sends one request after the other over one connection, as a script tells it."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import cast

Script = Generator[bytes, bytes, None]
"""Yields requests, and gets the body of the answer to each."""

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
PATIENCE_SECONDS = 120.0


class UnexpectedAnswer(Exception):
    """A server did not answer with 200."""


async def perform(port: int, scripts: Iterable[Script]) -> None:
    """Perform scripts at the same time, each over a connection of its own, to their ends."""
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = []
    for script in scripts:
        end: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(_performer(script, end), "127.0.0.1", port)
        ends.append(end)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*ends)


async def ask(port: int, one: bytes) -> bytes:
    """Send one request, and return the body of the answer."""
    bodies: list[bytes] = []

    def script() -> Script:
        bodies.append((yield one))

    await perform(port, [script()])
    return bodies[0]


def request(
    method: str, path: str, body: bytes = b"", content_type: str = "application/json", headers: str = ""
) -> bytes:
    """Return a request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}"
    if body:
        head += f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    elif method == "POST":
        head += "content-length: 0\r\n"
    return head.encode() + b"\r\n" + body


def _performer(script: Script, end: "asyncio.Future[None]") -> "Callable[[], _Performer]":
    return lambda: _Performer(script, end)


class _Performer(asyncio.Protocol):
    def __init__(self, script: Script, end: "asyncio.Future[None]") -> None:
        self._script = script
        self._end = end
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(next(self._script))

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        head_end = self._received.find(_HEAD_END)
        if head_end < 0:
            return
        at = self._received.find(_LENGTH, 0, head_end)
        length = int(self._received[at + len(_LENGTH) : self._received.index(b"\r\n", at)]) if at >= 0 else 0
        if len(self._received) < head_end + len(_HEAD_END) + length:
            return
        answer, self._received = self._received, b""
        if not answer.startswith(b"HTTP/1.1 200"):
            self._fail(UnexpectedAnswer(answer[:500].decode("latin-1")))
            return
        self._go_on(answer[head_end + len(_HEAD_END) :])

    def _go_on(self, body: bytes) -> None:
        assert self._transport is not None
        try:
            self._transport.write(self._script.send(body))
        except StopIteration:
            self._transport.close()
            self._end.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(UnexpectedAnswer(f"The connection ended early: {error}"))
