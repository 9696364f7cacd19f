"""The least that could do the work of the server: a program that is run by itself, with a kind and a port."""

import asyncio
import socket
import sys
from typing import ClassVar, cast

import uvicorn
import uvloop

from onebus.web.asgi import Receive, Scope, Send

FRAME_PATH = "/frame"
"""Bodies that go to everybody, who then stay."""
ANSWER_PATH = "/answer"
"""Bodies that go to everybody, whose connections are closed then."""

_EMPTY_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"8")]


class _FanOut(asyncio.Protocol):
    """Writes what is posted to it to everybody else, and holds whoever sends anything else."""

    held: ClassVar["set[asyncio.Transport]"] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        closes = data.startswith(b"POST " + ANSWER_PATH.encode())
        if not closes and not data.startswith(b"POST " + FRAME_PATH.encode()):
            self.held.add(self._transport)
            self._transport.write(b"held")
            return
        body = data.partition(b"\r\n\r\n")[2]
        for transport in tuple(self.held):
            transport.write(body)
            if closes:
                transport.close()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    def connection_lost(self, _: Exception | None) -> None:
        self.held.discard(self._transport)


async def _serve_fan_out(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_FanOut, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


async def _empty(_: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _EMPTY_HEADERS})
    await send({"type": "http.response.body", "body": b'{"id":1}'})


async def _serve_empty(port: int) -> None:
    config = uvicorn.Config(
        _empty, http="httptools", lifespan="off", log_level="warning", access_log=False, server_header=False
    )
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    _, kind, number = sys.argv
    uvloop.run(_serve_fan_out(int(number)) if kind == "fan-out" else _serve_empty(int(number)))
