"""A message as its consumer holds it."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from onebus.errors import NotAttached
from onebus.log.batch import Kind
from onebus.payload import unpack

_MISSING = object()
# Every message passes here, and looking up the member of an enumeration takes long.
_BYTES = Kind.BYTES


class Keeper(Protocol):
    """What keeps a message for its consumer until it is done."""

    @property
    def is_over(self) -> bool:
        """Whether the consumer has ended, so that it is too late to acknowledge anything."""
        ...

    def ack(self, message_id: int) -> None: ...

    async def release(self, message_id: int, delay: float) -> None: ...

    async def extend(self, message_id: int, seconds: float | None) -> None: ...

    async def reject(self, message: "Message", reason: str) -> None: ...


class Message(Struct, gc=False, eq=False):
    """One message: what was pushed, and what may be done with it.

    ``data`` is the text, bytes or JSON that was pushed. ``id`` grows with every message of its queue; ``timestamp`` is
    when it was pushed, in seconds since 1970; ``attempts`` counts its deliveries, this one included.
    """

    id: int
    _value: bytes
    _kind: Kind
    time_ms: int
    attempts: int = 1
    _keeper: Keeper | None = None
    key: bytes | None = None
    _headers: Mapping[str, str] | None = None
    _data: Any = _MISSING

    @property
    def data(self) -> Any:
        if self._kind is _BYTES:
            return self._value
        if self._data is _MISSING:
            self._data = unpack(self._value, self._kind)
        return self._data

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers or {}

    @property
    def kind(self) -> Kind:
        """Whether it was pushed as bytes, text or JSON."""
        return self._kind

    @property
    def raw(self) -> bytes:
        """The data as it is stored: bytes, UTF-8 text, or JSON."""
        return self._value

    @property
    def keeper(self) -> Keeper | None:
        """What keeps it until it is done; nothing does if it is delivered at most once."""
        return self._keeper

    @property
    def timestamp(self) -> float:
        return self.time_ms / 1000

    async def ack(self) -> None:
        """Declare this message done, so that it is never delivered again.

        It is settled along with the consumer's next request, at the latest when the consumer stops. Until then a
        crash delivers it again, as every reliable delivery may. What is delivered at most once needs no
        acknowledgement, and ignores it.
        """
        if self._keeper is not None:
            self._keeper.ack(self.id)

    async def release(self, delay: float = 0.0) -> None:
        """Give this message back, to be delivered again before newer ones, after `delay` seconds."""
        await self._kept().release(self.id, delay)

    async def extend(self, seconds: float | None = None) -> None:
        """Hold this message for `seconds` from now, by default as long as the consumer's lease.

        Raises:
            LeaseLost: it is somebody else's by now.
        """
        await self._kept().extend(self.id, seconds)

    async def reject(self, reason: str) -> None:
        """Put this message into the dead-letter queue, for somebody to look at."""
        await self._kept().reject(self, reason)

    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise NotAttached(
                f"Message {self.id} is not held for its consumer. Consume with reliable=True or lease=… to do this."
            )
        return self._keeper

    def __repr__(self) -> str:
        return f"<Message {self.id}: {self._value[:60]!r}>"
