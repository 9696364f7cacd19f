"""Several stores as one: each log lives on one of them, and stays there.

A log that exists is used where it is found, so a store can be added while the bus runs. A new log goes to the
store that rendezvous hashing gives its place, which moves as few names as possible when the list of
stores changes. Signals have no place: they travel through the first store of the list, so new
stores are added at the end.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Final, TypeVar

from onebus.errors import InvalidArgument, StoreClosed, StoreUnavailable
from onebus.log.claims import Lease
from onebus.log.names import check_name, place_of
from onebus.log.retention import Retention
from onebus.stores.base import (
    AppendRequest,
    Claim,
    ClaimRequest,
    Inspection,
    LogStat,
    Lost,
    Record,
    Slice,
    Span,
    Store,
    StoreOptions,
    TransferRequest,
)
from onebus.stores.switchboard import Subscription, Watch

T = TypeVar("T")

MAX_KNOWN_PLACES: Final = 100_000


class ShardedStore(Store):
    """Spreads places over stores. It is online while all of them are.

    A call fails only if the store that it needs is away. A name that has not been seen yet needs all of them:
    without asking each one, nobody could know whether it already lives there.
    """

    def __init__(self, shards: Sequence[Store], options: StoreOptions | None = None) -> None:
        if not shards:
            raise InvalidArgument("A sharded store needs at least one store.")
        super().__init__(" ".join(shard.url for shard in shards), options)
        self._shards = list(shards)
        self._known: OrderedDict[str, Store] = OrderedDict()
        for shard in shards:
            shard.health.on_change(self._shard_changed)

    async def add(self, shard: Store) -> None:
        """Put new logs on one more store, too; those that exist stay where they are."""
        await shard.open()
        self._shards.append(shard)
        self.url += f" {shard.url}"
        shard.health.on_change(self._shard_changed)
        self._known.clear()

    # Life

    async def _open(self) -> None:
        await asyncio.gather(*(shard.open() for shard in self._shards))

    async def _close(self) -> None:
        await asyncio.gather(*(shard.close() for shard in self._shards))

    async def _probe(self) -> None:
        away = [shard.url for shard in self._shards if not shard.health.is_online]
        if away:
            raise StoreUnavailable(f"Of the stores of this bus, {', '.join(away)} cannot be reached.")

    def _shard_changed(self, online: bool) -> None:
        if not online:
            away = ", ".join(shard.url for shard in self._shards if not shard.health.is_online)
            self.health.went_offline(StoreUnavailable(f"Of the stores of this bus, {away} cannot be reached."))

    async def _call(self, operation: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        # Each shard keeps its own deadline, and waits for itself only.
        if not self._is_open:
            raise StoreClosed("The sharded store is not open; open it first, or use it in `async with`.")
        return await operation()

    # Places

    async def _find(self, name: str) -> tuple[Store, bool]:
        """Return the store on which a name lives, or would live, and whether it is known to live there."""
        place = place_of(name)
        known = self._known.get(place)
        if known is not None:
            self._known.move_to_end(place)
            return known, True
        found = await asyncio.gather(*(shard.holds(place) for shard in self._shards))
        for shard, holds in zip(self._shards, found, strict=False):
            if holds:
                self._remember(place, shard)
                return shard, True
        return max(self._shards, key=lambda shard: _weight(shard.url, place)), False

    def _remember(self, place: str, shard: Store) -> None:
        self._known[place] = shard
        if len(self._known) > MAX_KNOWN_PLACES:
            self._known.popitem(last=False)

    def _forget(self, name: str) -> None:
        self._known.pop(place_of(name), None)

    async def _look(self, name: str, operation: Callable[[Store], Awaitable[T]]) -> T:
        """Run something that creates nothing and may be repeated where `name` lives."""
        shard, _ = await self._find(name)
        return await shard._call(lambda: operation(shard), repeatable=True)

    async def _change_at(self, name: str, operation: Callable[[Store], Awaitable[T]]) -> T:
        """Run something that changes what exists where `name` lives."""
        shard, _ = await self._find(name)
        return await shard._call(lambda: operation(shard))

    async def _create_at(self, name: str, operation: Callable[[Store], Awaitable[T]]) -> T:
        """Run something that creates `name` if it does not exist."""
        shard, is_known = await self._find(name)
        result = await shard._call(lambda: operation(shard))
        if not is_known:
            self._remember(place_of(name), shard)
        return result

    # Logs

    async def _append(self, log: str, request: AppendRequest) -> int:
        shard, is_known = await self._find(log)
        first_id = await shard._send(log, request)
        if not is_known:
            self._remember(place_of(log), shard)
        return first_id

    async def _stage(self, staging: str, log: str, ttl_ms: int | None) -> None:
        # Nobody finds a place by its staging logs: where it is must be what everybody else would say, too.
        self._forget(log)
        await self._create_at(log, lambda it: it._stage(staging, log, ttl_ms))

    async def _transfer(self, staging: str, log: str, request: TransferRequest) -> int:
        shard, _ = await self._find(log)
        return await shard._once(request.mark, lambda: shard._transfer(staging, log, request))

    async def _unmark(self, log: str, source: str) -> None:
        await self._look(log, lambda it: it._unmark(log, source))

    async def _read(self, log: str, after: int, limit: int, max_bytes: int) -> Slice:
        found = await self._look(log, lambda it: it._read(log, after, limit, max_bytes))
        if not found.epoch:
            self._forget(log)
        return found

    async def _claim(self, log: str, request: ClaimRequest) -> Claim:
        return await self._change_at(log, lambda it: it._claim(log, request))

    async def _settle(self, log: str, leases: Sequence[Lease]) -> Lost:
        return await self._change_at(log, lambda it: it._settle(log, leases))

    async def _release(self, log: str, leases: Sequence[Lease], delay_ms: int, attempted: bool) -> Lost:
        return await self._change_at(log, lambda it: it._release(log, leases, delay_ms, attempted))

    async def _extend(self, log: str, leases: Sequence[Lease], lease_ms: int) -> Lost:
        return await self._look(log, lambda it: it._extend(log, leases, lease_ms))

    async def _trim(self, log: str, retain: Retention) -> int:
        return await self._look(log, lambda it: it._trim(log, retain))

    async def _forget_before(self, log: str, before: int, epoch: str) -> int:
        return await self._look(log, lambda it: it._forget_before(log, before, epoch))

    async def _stat(self, log: str) -> LogStat | None:
        stat = await self._look(log, lambda it: it._stat(log))
        if stat is None:
            self._forget(log)
        return stat

    async def _unfinished(self, log: str) -> list[Span]:
        return await self._look(log, lambda it: it._unfinished(log))

    async def _touch(self, log: str, ttl_ms: int | None, create: bool) -> bool:
        run = self._create_at if create else self._change_at
        return await run(log, lambda it: it._touch(log, ttl_ms, create))

    async def _clear(self, log: str) -> None:
        await self._look(log, lambda it: it._clear(log))

    async def _drop(self, log: str) -> bool:
        existed = await self._change_at(log, lambda it: it._drop(log))
        self._forget(log)
        return existed

    async def _list_logs(self, prefix: str) -> list[str]:
        async def names(shard: Store) -> list[str]:
            return await shard._call(lambda: shard._list_logs(prefix), repeatable=True)

        lists = await asyncio.gather(*map(names, self._shards))
        return [name for names in lists for name in names]

    async def _holds(self, place: str) -> bool:
        return await self._look(place, lambda it: it._holds(place))

    # Records

    async def _get(self, name: str) -> Record | None:
        return await self._look(name, lambda it: it._get(name))

    async def _put(
        self, name: str, fields: Mapping[str, bytes | None], expected: int | None, ttl_ms: int | None
    ) -> int:
        return await self._create_at(name, lambda it: it._put(name, fields, expected, ttl_ms))

    async def _delete(self, name: str, expected: int | None) -> bool:
        return await self._change_at(name, lambda it: it._delete(name, expected))

    # Signals

    async def _signal(self, name: str, payload: bytes) -> int:
        return await self._shards[0].signal(name, payload)

    @asynccontextmanager
    async def listen(self, name: str) -> AsyncIterator[Subscription]:
        async with self._shards[0].listen(name) as subscription:
            yield subscription

    @asynccontextmanager
    async def watch(self, log: str) -> AsyncIterator[Watch]:
        check_name(log)
        shard, _ = await self._find(log)
        async with shard.watch(log) as watch:
            yield watch

    async def _stop_waiting(self, log: str, waiter: Watch, owner: str) -> Sequence[Lease]:
        return await self._look(log, lambda it: it._stop_waiting(log, waiter, owner))

    async def _inspect(self) -> Inspection:
        inspections = await asyncio.gather(*(shard.inspect() for shard in self._shards))
        findings = [
            replace(finding, topic=f"{finding.topic} of {inspection.product} at {shard.url}")
            for shard, inspection in zip(self._shards, inspections, strict=True)
            for finding in inspection.findings
        ]
        return Inspection(f"{len(self._shards)} stores as one", "", findings)


def _weight(url: str, place: str) -> bytes:
    return blake2b(f"{url}\n{place}".encode(), digest_size=8).digest()
