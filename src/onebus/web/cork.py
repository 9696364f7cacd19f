"""Sends the head of an answer along with its body: a web server writes them one after the other, which costs two calls
of the operating system where one would do, and those are what a small answer mostly costs.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onebus.web.asgi import Scope
from onebus.web.lane import LANE

_HEAD = b"HTTP/1."


class Cork:
    """A transport that holds back the head of an answer until its body comes, or until the next turn of the loop."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CorkedLane:
    """The lane of one connection."""

    __slots__ = ("_flow", "_transport")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._transport = transport
        self._flow = flow

    @property
    def is_free(self) -> bool:
        return not self._flow.write_paused and not self._transport.is_closing()

    def write(self, chunk: bytes) -> None:
        self._transport.write(chunk)


class CorkedProtocol(HttpToolsProtocol):
    """HTTP over transports with corks, and lanes beside them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", Cork(transport, self.loop)))
        self._lane = CorkedLane(self.transport, self.flow)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("Scope", self.scope)[LANE] = self._lane
