"""How queues are served over HTTP."""

import os
from dataclasses import dataclass, field
from typing import Final

from onebus.errors import InvalidArgument
from onebus.objects.workqueue import LEASE_SECONDS

TIMEOUT_VARIABLE: Final = "ONEBUS_PENDING_TIMEOUT"


def _timeout_of_environment() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE)
    if text is None:
        return LEASE_SECONDS
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{TIMEOUT_VARIABLE} must be a number of seconds, but is {text!r}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What may be chosen for the queues that are served."""

    queue: str = "messages"
    """The queue behind ``/message/…``."""
    pending_timeout: float = field(default_factory=_timeout_of_environment)
    """How many seconds a worker has for a message, unless its request says otherwise.

    By default what ``ONEBUS_PENDING_TIMEOUT`` says, else 10.
    """
    max_attempts: int | None = None
    """After how many deliveries a message goes to the dead letters; None tries for ever."""
    max_wait: float = 60.0
    """For how many seconds a request may wait for messages."""
    max_body_bytes: int = 2 * 1024 * 1024
    """Larger requests are refused."""
    max_open_queues: int = 256
    """How many queues are kept open at once; of more, those are closed that nobody has used for the longest time."""

    def __post_init__(self) -> None:
        if not self.pending_timeout > 0:
            raise InvalidArgument(f"pending_timeout must be greater than 0 seconds, but is {self.pending_timeout}.")
        if not self.max_wait >= 0:
            raise InvalidArgument(f"max_wait must be 0 seconds or more, but is {self.max_wait}.")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidArgument(f"max_attempts must be at least 1, but is {self.max_attempts}.")
        if self.max_open_queues < 1:
            raise InvalidArgument(f"max_open_queues must be at least 1, but is {self.max_open_queues}.")
