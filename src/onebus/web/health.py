"""Whether the bus can do its work, for monitors and load balancers."""

import asyncio
from typing import Final

import msgspec

from onebus import __version__
from onebus.errors import BusError
from onebus.stores import Store
from onebus.web.answers import Answer, json

PATIENCE_SECONDS: Final = 2.0
"""How long the store may take to answer; a monitor does not wait for much longer."""


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

    def __init__(self, store: Store) -> None:
        self._store = store
        self._product = ""

    async def answer(self) -> Answer:
        """Answer 200 if the store answers, 503 otherwise."""
        reason = await self._reason_to_worry()
        report = HealthReport(
            status="unavailable" if reason else "ok",
            online=not reason,
            store=self._store.url,
            product=self._product,
            version=__version__,
            reason=reason,
        )
        return json(report, status=503 if reason else 200)

    async def look(self) -> None:
        """Learn what the store is."""
        self._product = (await self._store.inspect()).product

    async def _reason_to_worry(self) -> str:
        health = self._store.health
        if health.is_online:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.look()
            except TimeoutError:
                return health.reason or f"The store did not answer within {PATIENCE_SECONDS:g} s."
            except BusError as error:
                return str(error)
            return ""
        return health.reason or "The store is not open."
