"""How a queue is consumed."""

from dataclasses import dataclass

from onebus.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """How to consume; see `onebus.objects.queue.Queue.consume`."""

    max: int | None = None
    remove: bool = True
    index: int = 0
    reliable: bool = False
    last: int = 0
    lease: float | None = None
    max_attempts: int | None = None
    prefetch: int | None = None
    wait: bool = True
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.remove and (self.reliable or self.lease is not None):
            raise InvalidArgument("remove=False leaves the messages where they are: there is nothing to acknowledge.")
        if self.index and self.remove:
            raise InvalidArgument("index is only for remove=False.")
        if self.last and not self.reliable:
            raise InvalidArgument("last is only for reliable=True.")
        if self.lease is not None and not self.lease > 0:
            raise InvalidArgument(f"lease must be greater than 0 seconds, but is {self.lease}.")
        if self.timeout is not None and not self.timeout >= 0:
            raise InvalidArgument(f"timeout must be 0 seconds or more, but is {self.timeout}.")
        for name in ("max_attempts", "prefetch"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InvalidArgument(f"{name} must be at least 1, but is {number}.")
        if self.max_attempts is not None and not self.needs_ack:
            raise InvalidArgument("max_attempts needs reliable=True or lease=…: without them there is one attempt.")

    @property
    def needs_ack(self) -> bool:
        """Whether messages are delivered again unless they are acknowledged."""
        return self.reliable or self.lease is not None

    @property
    def limit(self) -> int | None:
        """How many messages are wanted in all; a negative `max` means any number, as none does."""
        return None if self.max is None or self.max < 0 else self.max
