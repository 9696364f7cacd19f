"""Messages that wait for their time, in a log of their own.

Whoever consumes the queue also looks after its delayed messages. One that is not due yet is claimed and released with
the rest of its delay, so that the store itself keeps the time; one that is due is appended to the queue.
"""

import asyncio
from collections import defaultdict
from operator import itemgetter
from typing import Final

from onebus.errors import BusError, LeaseLost, StoreUnavailable
from onebus.events import Events
from onebus.log.batch import Entry, encode
from onebus.log.claims import Lease
from onebus.objects.link import Link
from onebus.objects.unpacking import claimed_entries, without_headers
from onebus.stores.following import RETRY_SECONDS

DUE_HEADER: Final = "onebus-due"
"""When a message is due, in milliseconds since 1970."""
MOVE_LEASE_SECONDS: Final = 10.0
MOVED_AT_ONCE: Final = 1000
SAFETY_POLL_SECONDS: Final = 10.0
LONGEST_REST_SECONDS: Final = 3600.0
KEPT_SECONDS: Final = 7 * 24 * 3600.0
"""How long messages that are due wait for somebody to consume their queue."""


class Delays:
    """Moves the delayed messages of one queue to it when they are due, while it is started."""

    def __init__(self, link: Link, log: str, queue_log: str, events: Events) -> None:
        self._link = link
        self._log = log
        self._queue_log = queue_log
        self._events = events
        self._moving: asyncio.Task[None] | None = None
        self._step: asyncio.Task[float] | None = None
        self._wanted_seconds = 0.0
        self._kept_seconds = 0.0

    # Keeping

    def expect(self, due_ms: int) -> None:
        """Hear of a message that is about to be delayed."""
        seconds = max((due_ms - self._link.clock()) / 1000, 0.0) + KEPT_SECONDS
        self._wanted_seconds = max(self._wanted_seconds, seconds)

    async def keep(self, *, is_new: bool) -> None:
        """Let the delayed messages live until the last of them is due, and some time longer; not for ever."""
        if is_new or self._wanted_seconds > self._kept_seconds:
            stat = await self._link.store.stat(self._log)
            seconds = max(self._wanted_seconds, stat.ttl_seconds if stat is not None else 0.0)
            await self._link.store.touch(self._log, ttl_seconds=seconds)
            self._kept_seconds = seconds

    # Moving

    def start(self) -> None:
        if self._moving is None:
            self._moving = self._link.run(self._move_for_ever(), self._events, f"onebus-delays {self._log}")

    async def stop(self) -> None:
        if self._moving is not None:
            moving, self._moving = self._moving, None
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
            # A step that has begun goes on to its end: half of one would move messages twice, or late.
            if self._step is not None:
                await asyncio.gather(self._step, return_exceptions=True)

    async def _move_for_ever(self) -> None:
        async with self._link.store.watch(self._log) as watch:
            while True:
                self._step = asyncio.create_task(self.move(), name=f"onebus-move {self._log}")
                try:
                    pause = await asyncio.shield(self._step)
                except StoreUnavailable:
                    pause = RETRY_SECONDS
                except LeaseLost:
                    # Another consumer was faster with some of them.
                    continue
                except BusError as error:
                    self._link.tell(self._events, "error", error)
                    pause = SAFETY_POLL_SECONDS
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
            due: list[tuple[int, Entry]] = []
            done: list[Lease] = []
            for lease, entry in claimed_entries(claim):
                due_ms = _due_ms(entry)
                if due_ms > now_ms:
                    waiting[min((due_ms - now_ms) / 1000, LONGEST_REST_SECONDS)].append(lease)
                else:
                    due.append((due_ms, without_headers(entry, {DUE_HEADER})))
                    done.append(lease)
            for seconds, leases in waiting.items():
                await store.release(self._log, leases, delay_seconds=seconds, attempted=False)
            if due:
                due.sort(key=itemgetter(0))
                await store.append(self._queue_log, encode([entry for _, entry in due], now_ms=now_ms))
                await store.settle(self._log, done)


def _due_ms(entry: Entry) -> int:
    return int((entry.headers or {}).get(DUE_HEADER, "0"))
