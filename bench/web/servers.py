"""The servers that are measured, each in a process of its own: onebus, and the least that could do the same work."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, cast

import uvicorn
import uvloop

from onebus.web.asgi import Receive, Scope, Send

FRAME_PATH = "/frame"
"""Bodies that go to everybody, who then stay."""
ANSWER_PATH = "/answer"
"""Bodies that go to everybody, whose connections are closed then."""

_PAGE_BYTES = 4096
_EMPTY_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"8")]


class Server:
    """A running server."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    @property
    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES


@contextmanager
def onebus(store: str) -> Iterator[Server]:
    """Run `onebus serve`."""
    command = [sys.executable, "-m", "onebus.cli", "serve", "--port", "0", "--store", store]
    command += ["--long-polling-interval", "600"]
    with _running(command) as (process, line):
        address = next(word for word in line.split() if word.startswith("http://"))
        yield Server(int(address.rpartition(":")[2]), process.pid)


@contextmanager
def bare_fan_out() -> Iterator[Server]:
    """Run a server that holds its connections and writes to all of them what it is sent."""
    with _running([sys.executable, "-m", "bench.web.servers", "fan-out"]) as (process, line):
        yield Server(int(line), process.pid)


@contextmanager
def empty_app() -> Iterator[Server]:
    """Run the same web server with an application that reads requests and answers ``{"id":1}``."""
    with _running([sys.executable, "-m", "bench.web.servers", "empty"]) as (process, line):
        yield Server(int(line), process.pid)


@contextmanager
def _running(command: list[str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


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


async def _serve_fan_out() -> None:
    server = await asyncio.get_running_loop().create_server(_FanOut, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _empty(_: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _EMPTY_HEADERS})
    await send({"type": "http.response.body", "body": b'{"id":1}'})


async def _serve_empty() -> None:
    config = uvicorn.Config(
        _empty, http="httptools", lifespan="off", log_level="warning", access_log=False, server_header=False
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listener.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(_serve_fan_out() if sys.argv[1] == "fan-out" else _serve_empty())
