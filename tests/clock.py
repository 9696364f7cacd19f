"""A clock that moves only when a test says so."""

import time


class FakeClock:
    """Starts at the present, because servers expire keys by their own clock, and only goes forward."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
