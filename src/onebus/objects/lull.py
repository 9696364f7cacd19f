"""Waiting for those who come at the same time, so that they can travel together.

Clients that were answered together ask again within some turns of the event loop. Whoever leaves with the first of them
makes the others wait for the way there and back, and leaves half empty.
"""

import asyncio
from typing import Final

QUIET_TURNS: Final = 8
"""After so many turns of the event loop without a newcomer nobody else is expected."""
MOST_TURNS: Final = 100
"""However many come, somebody has to leave at some time."""


class Lull:
    """The next moment in which nobody arrives."""

    def __init__(self) -> None:
        self._arrived = 0

    def arrive(self) -> None:
        """Hear of somebody who wants to travel."""
        self._arrived += 1

    async def come(self) -> None:
        """Return when nobody has arrived for some turns of the event loop."""
        quiet = turns = 0
        while quiet < QUIET_TURNS and turns < MOST_TURNS:
            arrived = self._arrived
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrived == arrived else 0
            turns += 1
