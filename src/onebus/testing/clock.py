"""A clock that moves only when a test says so."""

import time


class FakeClock:
    """A clock for ``Bus(clock=…)``. It starts at the present and only goes forward.

    The present, because servers expire what they keep by their own clock.
    """

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        """Return milliseconds since 1970."""
        return self.now_ms

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)
