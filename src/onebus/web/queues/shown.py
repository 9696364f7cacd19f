"""A message as the routes of a single queue show it."""

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Self

import msgspec

from onebus.log.batch import Kind
from onebus.message import Message


class Shown(msgspec.Struct, rename="camel"):
    """A message with where it stands: ``unprocessed``, ``pending`` or ``processed``."""

    id: int
    payload: str
    status: str
    created_at: str
    updated_at: str

    @classmethod
    def pending(cls, message: Message) -> Self:
        """Show a message that was handed out just now."""
        return cls.of(message, "pending", time.time_ns() // 1_000_000)

    @classmethod
    def of(cls, message: Message, status: str, updated_ms: int | None = None) -> Self:
        created = _time(message.time_ms)
        return cls(message.id, _text(message), status, created, created if updated_ms is None else _time(updated_ms))


def _text(message: Message) -> str:
    """Return the payload as text; bytes that are no text are shown as far as they are."""
    return message.raw.decode("utf-8", "replace" if message.kind is Kind.BYTES else "strict")


# Messages that were pushed together have the same time, and so have those that are handed out together.
@lru_cache(maxsize=64)
def _time(time_ms: int) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
