"""Waiting for those who come at the same time, so that they can travel together.

Clients that were answered together ask again within some turns of the event loop. Whoever leaves with the first of them
makes the others wait for the way there and back, and leaves half empty. So those who were answered just now are waited
for, for a moment. Who travels alone never waits.
"""

import asyncio
from time import perf_counter
from typing import Final

PATIENCE_SECONDS: Final = 0.0005
"""How long to wait for the next one who is expected."""
LONGEST_SECONDS: Final = 0.02
"""However many come, somebody has to leave at some time."""


class Lull:
    """The next good moment to leave. Use it in ``with`` around all that somebody who travels does."""

    def __init__(self) -> None:
        self._expected = 0

    def __enter__(self) -> None:
        if self._expected:
            self._expected -= 1

    def __exit__(self, *_: object) -> None:
        self._expected += 1

    async def come(self) -> None:
        """Return when all who are expected are here, or when nobody has come for a while."""
        began = news = perf_counter()
        expected = self._expected
        while self._expected:
            await asyncio.sleep(0)
            now = perf_counter()
            if self._expected != expected:
                expected, news = self._expected, now
            if now - news > PATIENCE_SECONDS or now - began > LONGEST_SECONDS:
                self._expected = 0
