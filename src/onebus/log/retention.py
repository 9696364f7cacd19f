"""How much of its past a log keeps."""

from dataclasses import dataclass

from onebus.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits on what a log keeps; a limit that is None does not apply.

    ``max_count`` is exact: older messages are invisible at once. ``max_bytes`` and ``max_age_seconds``
    remove whole batches, oldest first, and never the newest batch on account of its size.
    """

    max_count: int | None = None
    max_bytes: int | None = None
    max_age_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_count", "max_bytes", "max_age_seconds"):
            limit = getattr(self, name)
            if limit is not None and limit < 0:
                raise InvalidArgument(f"{name} must not be negative, but is {limit}.")

    @property
    def is_unlimited(self) -> bool:
        return self.max_count is None and self.max_bytes is None and self.max_age_seconds is None


KEEP_ALL = Retention()
