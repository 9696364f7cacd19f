"""A message as the routes of a single queue show it."""

from datetime import UTC, datetime
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
        return cls.of(message, "pending", datetime.now(UTC))

    @classmethod
    def of(cls, message: Message, status: str, updated: datetime | None = None) -> Self:
        created = datetime.fromtimestamp(message.timestamp, UTC)
        return cls(message.id, _text(message), status, _time(created), _time(updated or created))


def _text(message: Message) -> str:
    """Return the payload as text; bytes that are no text are shown as far as they are."""
    return message.raw.decode("utf-8", "replace" if message.kind is Kind.BYTES else "strict")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
