"""The bodies of requests and answers below ``/queues``."""

from base64 import b64encode
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onebus.errors import InvalidArgument
from onebus.log.batch import Entry, Kind
from onebus.objects.deadletters import DeadLetter
from onebus.objects.dispenser import MAX_HANDED_AT_ONCE, Held
from onebus.objects.workqueue import MAX_LEASE_SECONDS
from onebus.payload import pack

MAX_DELAY_SECONDS = 365 * 24 * 3600.0

Id = Annotated[int, Meta(ge=1, lt=1 << 53, description="The id of a message in its queue.")]
Token = Annotated[
    str, Meta(pattern="^[1-9][0-9]{0,15}$", description="The lease: proves that the message is held by who sends it.")
]
Delay = Annotated[float, Meta(ge=0, le=MAX_DELAY_SECONDS, description="Seconds.")]
Timeout = Annotated[float, Meta(gt=0, le=MAX_LEASE_SECONDS, description="Seconds.")]


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to be pushed."""

    data: Any
    key: str | None = None
    headers: dict[str, str] | None = None
    delay: Delay = 0.0

    def entry(self) -> Entry:
        value, kind = pack(self.data)
        return Entry(value, kind, self.key_bytes, self.checked_headers)

    @property
    def key_bytes(self) -> bytes | None:
        return None if self.key is None else self.key.encode()

    @property
    def checked_headers(self) -> dict[str, str] | None:
        for name in self.headers or ():
            if name.startswith("onebus-"):
                raise InvalidArgument(f"The header {name!r} is reserved; choose one without 'onebus-'.")
        return self.headers


NewMessages = Annotated[list[NewMessage], Meta(min_length=1, max_length=MAX_HANDED_AT_ONCE)]
"""Messages to be pushed together."""


class Pushed(msgspec.Struct):
    """The ids of the messages that were pushed, in their order; one that is delayed has none yet."""

    ids: list[Id | None]


class HandedMessage(msgspec.Struct, kw_only=True):
    """A message that was handed out."""

    id: Id
    lease: Token
    attempts: Annotated[int, Meta(ge=1, description="How often it was handed out, this time included.")]
    data: Any
    encoding: Literal["base64"] | UnsetType = UNSET
    key: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    timestamp: Annotated[float, Meta(description="When it was pushed, in seconds since 1970.")]

    @classmethod
    def of(cls, held: Held) -> Self:
        message = held.message
        data, encoding = _data(message.raw, message.kind)
        return cls(
            id=message.id,
            lease=str(held.fence),
            attempts=message.attempts,
            data=data,
            encoding=encoding,
            key=UNSET if message.key is None else message.key.decode("utf-8", "replace"),
            headers=dict(message.headers) or UNSET,
            timestamp=message.timestamp,
        )


class Handed(msgspec.Struct):
    """The messages that were handed out; none if there were none in time."""

    messages: list[HandedMessage]


class Finish(msgspec.Struct, forbid_unknown_fields=True):
    """Says that a message is done."""

    lease: Token


class Release(msgspec.Struct, forbid_unknown_fields=True):
    """Gives a message back."""

    lease: Token
    delay: Delay = 0.0


class Extend(msgspec.Struct, forbid_unknown_fields=True):
    """Asks for more time."""

    lease: Token
    timeout: Timeout | None = None


class Finished(msgspec.Struct, forbid_unknown_fields=True):
    """A message that is done."""

    id: Id
    lease: Token


class FinishMany(msgspec.Struct, forbid_unknown_fields=True):
    """Says that messages are done."""

    messages: Annotated[list[Finished], Meta(min_length=1, max_length=MAX_HANDED_AT_ONCE)]


class FinishedMany(msgspec.Struct):
    """Which messages are done, and which leases were lost."""

    done: list[Id]
    lost: list[Id]


class State(msgspec.Struct):
    """What is in a queue."""

    name: str
    waiting: int
    held: int
    dead: int
    delayed: int


class States(msgspec.Struct):
    """All queues."""

    queues: list[State]


class Letter(msgspec.Struct, kw_only=True):
    """A message that could not be handled."""

    id: Id
    data: Any
    encoding: Literal["base64"] | UnsetType = UNSET
    reason: str
    attempts: int
    message_id: Annotated[int, Meta(description="Its id in the queue.")]
    timestamp: float

    @classmethod
    def of(cls, letter: DeadLetter) -> Self:
        is_bytes = isinstance(letter.data, bytes)
        return cls(
            id=letter.id,
            data=b64encode(letter.data).decode() if is_bytes else letter.data,
            encoding="base64" if is_bytes else UNSET,
            reason=letter.reason,
            attempts=letter.attempts,
            message_id=letter.message_id,
            timestamp=letter.timestamp,
        )


class Letters(msgspec.Struct):
    """Dead letters, oldest first."""

    letters: list[Letter]


class Redrive(msgspec.Struct, forbid_unknown_fields=True):
    """Asks for dead letters to be pushed once more."""

    limit: Annotated[int, Meta(ge=1, lt=1 << 53)] | None = None


class Redriven(msgspec.Struct):
    """How many dead letters were pushed once more."""

    redriven: int


class Problem(msgspec.Struct):
    """What went wrong."""

    code: str
    text: str


class Refused(msgspec.Struct):
    """An answer that says what went wrong."""

    error: Problem


def _data(raw: bytes, kind: Kind) -> tuple[Any, Literal["base64"] | UnsetType]:
    """Return the data of a message as JSON takes it, and how it is written if it is not what was pushed."""
    if kind is Kind.JSON:
        return msgspec.Raw(raw), UNSET
    if kind is Kind.TEXT:
        return raw.decode(), UNSET
    return b64encode(raw).decode(), "base64"
