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

    def forgets(self, *, age_ms: int, bytes_since: int, is_newest: bool) -> bool:
        """Return whether a batch has to go, given its age and the size of the log from its start on."""
        too_old = self.max_age_seconds is not None and age_ms > self.max_age_seconds * 1000
        too_much = self.max_bytes is not None and not is_newest and bytes_since > self.max_bytes
        return too_old or too_much


KEEP_ALL = Retention()
