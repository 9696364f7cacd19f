"""What goes back over HTTP: pages for people, JSON for programs."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from onebus.errors import (
    BusError,
    InvalidArgument,
    LeaseLost,
    LogFull,
    NotAttached,
    NotConnected,
    Overloaded,
    PayloadTooLarge,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
)
from onebus.web.asgi import Send
from onebus.web.lane import Lane
from onebus.web.wire.head import BODYLESS

_FRESH: Final[Mapping[str, str]] = {"cache-control": "no-store"}

_encoder = msgspec.json.Encoder()


class Answer(msgspec.Struct, frozen=True):
    """A whole response."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}

    def give(self, lane: Lane) -> None:
        """Write the answer, over a short cut to the client."""
        lane.answer(self.status, _raw_headers(self.content_type, *self.headers.items()), self.body)

    async def send(self, send: Send, *, with_body: bool = True, kind: str = "http.response") -> None:
        """Hand the answer to the web server; without its body for a HEAD request."""
        headers = _raw_headers(self.content_type, *self.headers.items())
        if self.status not in BODYLESS:
            headers = [(b"content-length", b"%d" % len(self.body)), *headers]
        await send({"type": f"{kind}.start", "status": self.status, "headers": headers})
        await send({"type": f"{kind}.body", "body": self.body if with_body else b""})


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers as a web server wants them."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


@lru_cache(maxsize=1000)
def _raw_headers(content_type: str, *headers: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    # Most answers have the headers of others.
    return raw_headers({"content-type": content_type, **dict(headers)} if content_type else dict(headers))


def page(html: str) -> Answer:
    return Answer(200, "text/html; charset=utf-8", html.encode())


def json(content: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with JSON that nobody may keep: it tells how things are now."""
    return Answer(status, "application/json", _encoder.encode(content), {**_FRESH, **headers} if headers else _FRESH)


def nothing() -> Answer:
    """Answer that it was done, and that there is nothing to say."""
    return Answer(204, "", b"", _FRESH)


_STATUS_OF: Final[Mapping[type[BusError], int]] = {
    PayloadTooLarge: 413,
    InvalidArgument: 400,
    LeaseLost: 409,
    LogFull: 429,
    Overloaded: 503,
    StoreFull: 507,
    StoreUnavailable: 503,
    StoreClosed: 503,
    NotConnected: 503,
    NotAttached: 503,
}


def failure(problem: BusError, *, headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with what went wrong, in the words that every door has for it."""
    status = next((status for kind, status in _STATUS_OF.items() if isinstance(problem, kind)), 500)
    retry = {"retry-after": "1"} if status in (429, 503) else {}
    return error(status, problem.code, str(problem), headers={**retry, **(headers or {})})


def error(status: int, code: str, text: str, *, headers: Mapping[str, str] | None = None) -> Answer:
    return json({"error": {"code": code, "text": text}}, status=status, headers=headers)
