"""A request and its answer as they go over the wire: every header, and every chunk as it comes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

DEADLINE_SECONDS: Final = 20.0
FRAME_END: Final = b"\r\n|\r\n"
_MAX_CHUNK_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error_code(self) -> str:
        code: str = self.json["error"]["code"]
        return code


class Reply:
    """An answer as it comes in. No header may come twice."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, has_body: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._has_body = has_body
        self.status = 0
        self.headers: dict[str, str] = {}

    async def begin(self) -> None:
        """Read everything up to the body, once."""
        if self.status:
            return
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        fields = [line.split(": ", 1) for line in lines]
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, value in fields}
        assert len(self.headers) == len(fields), fields

    async def chunk(self) -> bytes:
        """Return the next chunk of the body; nothing at its end."""
        await self.begin()
        async with asyncio.timeout(DEADLINE_SECONDS):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            chunk = await self._reader.readexactly(size + 2)
        assert chunk.endswith(b"\r\n")
        return chunk[:-2]

    async def frame(self) -> list[Any]:
        """Return the messages of the next frame, which is a chunk by itself."""
        chunk = await self.chunk()
        assert chunk.endswith(FRAME_END), chunk
        messages: list[Any] = json.loads(chunk.removesuffix(FRAME_END))
        return messages

    async def data(self) -> list[Any]:
        return [message["data"] for message in await self.frame()]

    async def whole(self) -> Response:
        """Return the answer when all of it has come."""
        await self.begin()
        return Response(self.status, self.headers, await self._body())

    async def has_ended(self) -> bool:
        """Return whether the server has closed the connection and sent nothing before."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._reader.read(1) == b""

    async def has_ended_well(self) -> bool:
        """Return whether the stream was ended as such, and then the connection."""
        return await self.chunk() == b"" and await self.has_ended()

    def go_away(self) -> None:
        self._writer.close()

    async def _body(self) -> bytes:
        if "transfer-encoding" in self.headers:
            chunks = []
            while chunk := await self.chunk():
                chunks.append(chunk)
            return b"".join(chunks)
        async with asyncio.timeout(DEADLINE_SECONDS):
            if self._has_body and "content-length" in self.headers:
                return await self._reader.readexactly(int(self.headers["content-length"]))
            return await self._reader.read()


@asynccontextmanager
async def exchange(
    port: int,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    version: str = "1.1",
    receive_buffer_bytes: int | None = None,
) -> AsyncIterator[Reply]:
    """Send a request over a connection of its own, and give its answer, of which nothing is read yet."""
    line = socket.socket()
    line.setblocking(False)
    if receive_buffer_bytes is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", port))
    limit = _MAX_CHUNK_BYTES if receive_buffer_bytes is None else receive_buffer_bytes
    reader, writer = await asyncio.open_connection(sock=line, limit=limit)
    fields = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"{method} {path} HTTP/{version}\r\n{head}\r\n".encode() + body)
    try:
        yield Reply(reader, writer, has_body=method != "HEAD")
    finally:
        writer.close()
