"""One request and its answer, as an ASGI application sees them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from onebus.web.asgi import App, Message, Scope
from onebus.web.lane import LANE
from onebus.web.wire.head import BODYLESS, RawHeaders, head_of, plain_answer

MAX_WAITING_BODY_BYTES: Final = 64 * 1024
"""What is received of a body before the application asks for it."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_DISCONNECT: Final = {"type": "http.disconnect"}

_log = logging.getLogger("onebus")


class ClientGone(OSError):
    """Nobody is there to be answered."""


class Line(Protocol):
    """The connection over which an exchange goes."""

    transport: asyncio.Transport

    @property
    def is_open(self) -> bool:
        """Whether there is somebody at its other end, and nobody has hung up at this one."""

    @property
    def is_free(self) -> bool:
        """Whether what is written now is on its way at once."""

    @property
    def default_headers(self) -> RawHeaders:
        """The headers that every answer has."""

    async def drain(self) -> None:
        """Return when the client has read enough of what was written, or is gone."""

    def resume_reading(self) -> None: ...

    def finished(self, exchange: "Exchange") -> None:
        """Hear that an exchange was answered to its end."""


class Exchange:
    """A request that is received and answered. It is its own lane: see `onebus.web.lane`."""

    __slots__ = (
        "_body",
        "_content_left",
        "_gone",
        "_head",
        "_is_chunked",
        "_line",
        "_news",
        "_task",
        "_was_taken",
        "has_begun",
        "is_answered",
        "is_whole",
        "keeps_alive",
        "scope",
        "wants_continue",
    )

    def __init__(self, line: Line, scope: Scope, *, keeps_alive: bool, wants_continue: bool) -> None:
        self._line = line
        self.scope = scope
        scope[LANE] = self
        self.keeps_alive = keeps_alive
        self.wants_continue = wants_continue
        self.is_whole = False
        """Whether all of the body is here."""
        self.is_answered = False
        self.has_begun = False
        """Whether anything of the answer was written."""
        self._task: asyncio.Task[None]
        self._body = b""
        self._was_taken = False
        self._news: asyncio.Future[None] | None = None
        self._gone: Callable[[], None] | None = None
        self._head: bytes | None = None
        self._is_chunked = False
        self._content_left: int | None = None

    def start(self, app: App, loop: asyncio.AbstractEventLoop, tasks: "set[asyncio.Task[None]]") -> None:
        """Let an application answer, in a task that is one of `tasks` for as long as it takes."""
        self._task = loop.create_task(self._run(app, tasks))
        tasks.add(self._task)

    async def _run(self, app: App, tasks: "set[asyncio.Task[None]]") -> None:
        """Let an application answer; what it does wrong ends this exchange and nothing else."""
        try:
            await app(self.scope, self.receive, self.send)
        except ClientGone:
            return
        except Exception:
            _log.exception("%s %s could not be answered", self.scope["method"], self.scope["path"])
        finally:
            tasks.discard(self._task)
            # They know each other, so neither would be given back before the next collection of garbage.
            del self.scope[LANE]
        if not self.is_answered and self._line.is_open:
            self._break_off()

    def _break_off(self) -> None:
        transport = self._line.transport
        if not self.has_begun:
            transport.write(plain_answer(500, "Internal Server Error", self._line.default_headers))
        transport.close()

    # What the connection brings

    def add(self, part: bytes) -> bool:
        """Take a part of the body, and return whether there is room for more."""
        self._body = self._body + part if self._body else part
        self._wake()
        return len(self._body) < MAX_WAITING_BODY_BYTES

    def complete(self) -> None:
        """Hear that the request is complete."""
        self.is_whole = True
        self._wake()

    def lose(self) -> None:
        """Hear that the client is gone."""
        if not self.is_answered:
            self._wake()
            if self._gone is not None:
                self._gone()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # What the application asks for

    async def receive(self) -> Message:
        """Return the next part of the body, or that the client is gone or answered."""
        if self.wants_continue and not self.is_whole and not self.has_begun:
            self._line.transport.write(_CONTINUE)
        self.wants_continue = False
        while not self.is_answered and self._line.is_open:
            if self._body or (self.is_whole and not self._was_taken):
                body, self._body = self._body, b""
                self._was_taken = self.is_whole
                if not self.is_whole:
                    self._line.resume_reading()
                return {"type": "http.request", "body": body, "more_body": not self.is_whole}
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """Take the next part of the answer. Its head is written along with the first part of its body.

        Raises:
            ClientGone: nobody is there to take it.
        """
        if not self._line.is_free:
            await self._line.drain()
        if not self._line.is_open and not self.is_answered:
            raise ClientGone("The client is gone.")
        kind = message["type"]
        if kind == "http.response.start" and self._head is None and not self.has_begun:
            self._begin(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and (self._head is not None or self.has_begun) and not self.is_answered:
            self._write(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind!r} does not come next in an answer.")

    def _begin(self, status: int, headers: RawHeaders) -> None:
        lines, length, closes = head_of(status, *self._line.default_headers, *headers)
        if self.scope["method"] == "HEAD" or status in BODYLESS:
            self._content_left = 0
        elif length is not None:
            self._content_left = length
        elif self.scope["http_version"] == "1.1":
            self._is_chunked = True
            lines += b"transfer-encoding: chunked\r\n"
        else:
            # The end of the connection is the end of the answer.
            self.keeps_alive = False
        self._head = b"%b%b\r\n" % (lines, self._last_line(closes))

    def _last_line(self, closes: bool) -> bytes:
        """Return the header that a head needs in addition if it is the last one of its connection."""
        if closes:
            self.keeps_alive = False
        return b"" if closes or self.keeps_alive else b"connection: close\r\n"

    def _write(self, body: bytes, *, is_last: bool) -> None:
        if self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if is_last:
                body += b"0\r\n\r\n"
        elif self._content_left is not None:
            if self.scope["method"] == "HEAD":
                body = b""
            self._content_left -= len(body)
            if self._content_left < 0 or (is_last and self._content_left):
                raise RuntimeError("The body is not as long as the header content-length says.")
        if self._head is not None:
            body, self._head = self._head + body, None
        self.has_begun = True
        self._line.transport.write(body)
        if is_last:
            self._end()

    def _end(self) -> None:
        self.is_answered = True
        self._wake()
        self._line.finished(self)

    # The lane

    @property
    def is_free(self) -> bool:
        return self._line.is_free and self._line.is_open

    def take_body(self) -> bytes | None:
        if not self.is_whole or self._was_taken:
            return None
        self._was_taken = True
        body, self._body = self._body, b""
        return body

    def write(self, chunk: bytes) -> None:
        self._line.transport.write(chunk)

    def answer(self, status: int, headers: RawHeaders, body: bytes) -> None:
        line = self._line
        if line.is_open:
            # The length is no part of what is remembered: answers have the same head but for that.
            lines, _, closes = head_of(status, *line.default_headers, *headers)
            length = b"" if status in BODYLESS else b"content-length: %d\r\n" % len(body)
            if self.scope["method"] == "HEAD":
                body = b""
            self.has_begun = True
            line.transport.write(b"%b%b%b\r\n%b" % (lines, length, self._last_line(closes), body))
            self._end()

    def when_gone(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        if not self._line.is_open:
            gone()
