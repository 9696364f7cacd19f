"""Messages that wait for their time, in a log of their own.

Whoever consumes the queue also looks after its delayed messages. One that is not due yet is claimed and released with
the rest of its delay, so that the store itself keeps the time; one that is due is appended to the queue.
"""

import asyncio
from collections import defaultdict
from typing import Final

from onebus.errors import LeaseLost, StoreUnavailable
from onebus.events import Events
from onebus.log.batch import Entry, decode, encode
from onebus.log.claims import Lease
from onebus.objects.link import Link
from onebus.stores.base import Claim
from onebus.stores.following import RETRY_SECONDS

DUE_HEADER: Final = "onebus-due"
"""When a message is due, in milliseconds since 1970."""
MOVE_LEASE_SECONDS: Final = 10.0
MOVED_AT_ONCE: Final = 1000
SAFETY_POLL_SECONDS: Final = 10.0
LONGEST_REST_SECONDS: Final = 3600.0


class Delays:
    """Moves the delayed messages of one queue to it when they are due, while it is started."""

    def __init__(self, link: Link, log: str, queue_log: str, events: Events) -> None:
        self._link = link
        self._log = log
        self._queue_log = queue_log
        self._events = events
        self._moving: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._moving is None:
            self._moving = self._link.run(self._move_for_ever(), self._events, f"onebus-delays {self._log}")

    async def stop(self) -> None:
        if self._moving is not None:
            moving, self._moving = self._moving, None
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)

    async def _move_for_ever(self) -> None:
        async with self._link.store.watch(self._log) as watch:
            while True:
                try:
                    pause = await self.move()
                except StoreUnavailable:
                    pause = RETRY_SECONDS
                except LeaseLost:
                    # Another consumer was faster with some of them.
                    continue
                await watch.wait(min(pause, SAFETY_POLL_SECONDS))

    async def move(self) -> float:
        """Move what is due, send the rest back to wait, and return how long there is nothing to do."""
        store = self._link.store
        while True:
            claim = await store.claim(
                self._log, limit=MOVED_AT_ONCE, lease_seconds=MOVE_LEASE_SECONDS, owner=self._link.client
            )
            if not claim.leases:
                return SAFETY_POLL_SECONDS if claim.retry_after_seconds is None else claim.retry_after_seconds
            now_ms = self._link.clock()
            waiting: defaultdict[float, list[Lease]] = defaultdict(list)
            due: list[Entry] = []
            done: list[Lease] = []
            for lease, entry in _claimed(claim):
                rest_ms = _due_ms(entry) - now_ms
                if rest_ms > 0:
                    waiting[min(rest_ms / 1000, LONGEST_REST_SECONDS)].append(lease)
                else:
                    due.append(_as_pushed(entry))
                    done.append(lease)
            for seconds, leases in waiting.items():
                await store.release(self._log, leases, delay_seconds=seconds, attempted=False)
            if due:
                await store.append(self._queue_log, encode(due, now_ms=now_ms))
                await store.settle(self._log, done)


def _claimed(claim: Claim) -> list[tuple[Lease, Entry]]:
    entries = {
        id_: entry
        for stored in claim.batches
        for id_, entry in enumerate(decode(stored.blob).entries(), stored.first_id)
    }
    return [
        (lease.part(id_, id_), entries[id_]) for lease in claim.leases for id_ in range(lease.first, lease.last + 1)
    ]


def _due_ms(entry: Entry) -> int:
    return int((entry.headers or {}).get(DUE_HEADER, "0"))


def _as_pushed(entry: Entry) -> Entry:
    headers = {name: text for name, text in (entry.headers or {}).items() if name != DUE_HEADER}
    return Entry(entry.value, entry.kind, entry.key, headers or None, entry.time_ms)
