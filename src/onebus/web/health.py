"""Whether the bus can do its work, for monitors and load balancers."""

import asyncio
import time
from math import inf
from typing import Final

import msgspec

from onebus import __version__
from onebus.bus import Bus
from onebus.errors import BusError
from onebus.web.answers import Answer, json

PATIENCE_SECONDS: Final = 2.0
"""How long the store may take to answer; a monitor does not wait for much longer."""


FRESH_SECONDS: Final = 1.0
"""How long a sign of life counts, however many ask: a store that goes away is noticed sooner by whoever uses it."""


class HealthReport(msgspec.Struct, frozen=True):
    """The body of ``/healthz``."""

    status: str
    online: bool
    store: str
    product: str
    version: str
    reason: str = ""


class HealthCheck:
    """Asks the store for a sign of life; it remembers what the store is for the time when there is none."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._store = ""
        self._product = ""
        self._looked_at = -inf

    async def answer(self) -> Answer:
        """Answer 200 if the store answers, 503 otherwise."""
        reason = await self._reason_to_worry()
        report = HealthReport(
            status="unavailable" if reason else "ok",
            online=not reason,
            store=self._store,
            product=self._product,
            version=__version__,
            reason=reason,
        )
        return json(report, status=503 if reason else 200)

    async def look(self) -> None:
        """Learn what the store is."""
        store = self._bus.link.store
        self._store = store.url
        self._product = (await store.inspect()).product
        self._looked_at = time.monotonic()

    async def _reason_to_worry(self) -> str:
        try:
            health = self._bus.link.store.health
            if not health.is_online:
                return health.reason or "The store cannot be reached."
            if time.monotonic() < self._looked_at + FRESH_SECONDS:
                return ""
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.look()
        except TimeoutError:
            return f"The store did not answer within {PATIENCE_SECONDS:g} s."
        except BusError as error:
            return str(error)
        return ""
