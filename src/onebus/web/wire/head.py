"""The first lines of an answer. Most answers begin with the same ones, so these are written once."""

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


BODYLESS: Final = (204, 304)
"""Answers with these have no body."""


class Head(NamedTuple):
    """The status and the headers of an answer as they go over the wire, and what they say about its body."""

    lines: bytes
    content_length: int | None
    closes: bool
    """Whether the connection is closed after the answer."""


@lru_cache(maxsize=4096)
def head_of(status: int, *headers: tuple[bytes, bytes]) -> Head:
    """Return the beginning of an answer.

    Raises:
        ValueError: its headers would be read as something else.
    """
    fields = {name.lower(): value for name, value in headers}
    length = fields.get(b"content-length")
    return Head(
        b"".join((_status_line(status), *(_line(*header) for header in headers))),
        None if length is None else int(length),
        b"close" in fields.get(b"connection", b"").lower(),
    )


def plain_answer(status: int, text: str, headers: RawHeaders) -> bytes:
    """Return a whole answer, after which the connection is closed."""
    body = text.encode()
    own = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body)))
    return b"%bconnection: close\r\n\r\n%b" % (head_of(status, *headers, *own).lines, body)


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


def _line(name: bytes, value: bytes) -> bytes:
    if not _NAME.fullmatch(name) or _FORBIDDEN_IN_VALUE.search(value):
        raise ValueError(f"{name!r}: {value!r} is not a header.")
    return b"%b: %b\r\n" % (name.lower(), value)
