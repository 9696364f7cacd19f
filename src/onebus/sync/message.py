"""A message as blocking code holds it."""

from collections.abc import Mapping
from typing import Any

from onebus.log.batch import Kind
from onebus.message import Message as AsyncMessage
from onebus.sync.portal import Portal


class Message:
    """One message; see `onebus.Message`. Its methods may be called in any thread."""

    __slots__ = ("_message", "_portal")

    def __init__(self, portal: Portal, message: AsyncMessage) -> None:
        self._portal = portal
        self._message = message

    @property
    def id(self) -> int:
        return self._message.id

    @property
    def data(self) -> Any:
        return self._message.data

    @property
    def kind(self) -> Kind:
        """Whether it was pushed as bytes, text or JSON."""
        return self._message.kind

    @property
    def raw(self) -> bytes:
        """The data as it is stored: bytes, UTF-8 text, or JSON."""
        return self._message.raw

    @property
    def key(self) -> bytes | None:
        return self._message.key

    @property
    def headers(self) -> Mapping[str, str]:
        return self._message.headers

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included."""
        return self._message.attempts

    @property
    def time_ms(self) -> int:
        return self._message.time_ms

    @property
    def timestamp(self) -> float:
        """When it was pushed, in seconds since 1970."""
        return self._message.timestamp

    @property
    def wrapped(self) -> AsyncMessage:
        """The message as the objects of the bus know it."""
        return self._message

    def ack(self) -> None:
        """Declare this message done; see `onebus.Message.ack`. It waits for nothing."""
        keeper = self._message.keeper
        if keeper is None:
            return
        if keeper.is_over:
            self._portal.call(self._message.ack())
        else:
            self._portal.post(keeper.ack, self._message.id)

    def release(self, delay: float = 0.0) -> None:
        """Give this message back; see `onebus.Message.release`."""
        self._portal.call(self._message.release(delay))

    def extend(self, seconds: float | None = None) -> None:
        """Hold this message for longer; see `onebus.Message.extend`."""
        self._portal.call(self._message.extend(seconds))

    def reject(self, reason: str) -> None:
        """Put this message into the dead-letter queue; see `onebus.Message.reject`."""
        self._portal.call(self._message.reject(reason))

    def __repr__(self) -> str:
        return repr(self._message)
