"""Reading a log as it grows, and claiming from it as messages come: on any store, without polling it.

Both loops sleep until the store wakes them, look once in a while by themselves because a wake-up is only a
hint, and go on by themselves when the store has been away.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from onebus.errors import StoreUnavailable
from onebus.log.claims import Lease
from onebus.stores.base import Claim, Slice, Store
from onebus.stores.switchboard import Watch

SAFETY_POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.05
"""A store that is away makes its callers wait by itself; this is for one that is there and refuses."""


async def follow(store: Store, log: str, *, after: int, limit: int = 10_000) -> AsyncGenerator[Slice]:
    """Yield what a log holds after id `after`, and then what is appended to it, for ever.

    The first batch of a slice may begin at or before the ids already seen. A slice whose ``first_id`` is
    greater than expected tells that the log was trimmed past the reader. A slice with another ``epoch`` tells that
    the log has ended and a new one has its name: that one is read from its beginning.
    """
    epoch = ""
    async with store.watch(log) as watch:
        while True:
            try:
                found = await store.read(log, after=after, limit=limit)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if found.last_id < after or (epoch and found.epoch not in ("", epoch)):
                after, epoch = 0, found.epoch
                continue
            epoch = found.epoch or epoch
            if found.batches:
                yield found
                after = found.batches[-1].last_id
                if after < found.last_id:
                    continue
            # All is read. From here on it is enough to listen, as long as the wake-ups bring everything along.
            while await watch.wait(SAFETY_POLL_SECONDS):
                news = watch.take_news(found.epoch, after)
                if news is None:
                    break
                if news:
                    after = news[-1].last_id
                    yield Slice(news, found.first_id, after, found.epoch)


class Claimant:
    """Claims from one log again and again, and settles what is done along with the next claim."""

    def __init__(self, store: Store, log: str, watch: Watch, *, limit: int, lease_seconds: float, owner: str) -> None:
        self._store = store
        self._log = log
        self._watch = watch
        self._limit = limit
        self._lease_seconds = lease_seconds
        self._owner = owner
        self._done: deque[Lease] = deque()

    async def next(self) -> Claim:
        """Return the next messages; wait until there are some."""
        while True:
            done = tuple(self._done)
            try:
                claim = await self._store.claim(
                    self._log,
                    limit=self._limit,
                    lease_seconds=self._lease_seconds,
                    owner=self._owner,
                    settle=done,
                )
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for _ in done:
                self._done.popleft()
            if claim.leases:
                return claim
            pause = SAFETY_POLL_SECONDS
            if claim.retry_after_seconds is not None:
                pause = min(pause, max(claim.retry_after_seconds, 0.001))
            await self._watch.wait(pause)

    def done(self, leases: Sequence[Lease]) -> None:
        """Settle leases with the next claim, or when the claimant is left."""
        self._done.extend(leases)

    async def flush(self) -> None:
        """Settle now what is done."""
        done = tuple(self._done)
        self._done.clear()
        await self._store.settle(self._log, done)


@asynccontextmanager
async def claimant(
    store: Store, log: str, *, limit: int = 20_000, lease_seconds: float = 30.0, owner: str = ""
) -> AsyncIterator[Claimant]:
    """Claim from a log until left; what was marked as done is settled on the way out."""
    async with store.watch(log) as watch:
        one = Claimant(store, log, watch, limit=limit, lease_seconds=lease_seconds, owner=owner)
        try:
            yield one
        finally:
            await one.flush()
