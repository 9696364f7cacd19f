"""The store contract on Redis."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from itertools import count as numbers
from typing import Any, Final

from onebus.errors import AlreadyAppended, LogFull, StoreUnavailable, VersionConflict
from onebus.log.claims import Lease, ranges_of
from onebus.log.mark import Mark
from onebus.log.names import anchor_of, is_staging
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
    fitting,
    staging_gone,
    staging_lost,
)
from onebus.stores.redis import scripts
from onebus.stores.redis.address import Address, Mode, parse_address
from onebus.stores.redis.answers import (
    NOTHING,
    Entry,
    apart_of,
    batch_of,
    claim_of,
    limits_of,
    lost_of,
    spans_of,
    stat_of,
    sweep_of,
)
from onebus.stores.redis.cluster import ClusterConnections
from onebus.stores.redis.connection import Argument, Connections, evaluation
from onebus.stores.redis.inspection import inspect_redis
from onebus.stores.redis.names import (
    Channels,
    apart_key,
    log_keys,
    log_of_key,
    log_pattern,
    mark_field,
    record_key,
    to_field,
    user_fields,
)
from onebus.stores.redis.scripts import Script
from onebus.stores.redis.server import SentinelConnections, ServerConnections
from onebus.stores.redis.signals import Signals
from onebus.stores.switchboard import Watch

MAX_CONNECT_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 5.0
LARGE_BYTES: Final = 16 * 1024
"""Batches of this size are read without Lua, which takes a nanosecond or more for each byte that it gets to see."""
LARGE_AT_ONCE: Final = 16
"""So many of them are read at once: nobody knows how large they are before they have come."""
MAX_SIZES: Final = 10_000
ORPHANED_MS: Final = 60_000
"""How long a batch lies apart that no log knows, because its sender was cut off or refused."""


class RedisStore(Store):
    """Keeps logs as streams of batches, and wakes readers through pub/sub."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        self._address = parse_address(url)
        super().__init__(self._address.display, options)
        # In a cluster nobody can tell whether what is handed over is received: PUBLISH counts those at one node only.
        self.hands_over = self._address.mode is not Mode.CLUSTER
        self._epoch_prefix = secrets.token_hex(8)
        self._epochs = numbers()
        self._sizes: dict[str, int] = {}
        """How large the batches of a log were when they were read last."""
        self._channels = Channels(self._address.database)
        self._connections = _connections_to(self._address, self.options.deadline_seconds)
        self._signals = Signals(self.url, self._connections.dial, self._channels, self.switchboard, self.health)

    # Life

    async def _open(self) -> None:
        self._connections.open()
        await self._probe()

    async def _close(self) -> None:
        await self._signals.close()
        await self._connections.close()

    async def _probe(self) -> None:
        seconds = min(PROBE_SECONDS, self.options.deadline_seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._connections.probe()
                await self._signals.open()
        except TimeoutError as error:
            raise StoreUnavailable(f"Redis at {self.url} did not answer within {seconds} s.") from error

    # Logs

    async def _append(self, log: str, request: AppendRequest) -> int:
        first_id = None
        if request.is_plain and is_staging(log) and len(request.batch) >= LARGE_BYTES:
            first_id = await self._append_apart(log, request)
        return await self._append_by_script(log, request) if first_id is None else first_id

    async def _append_apart(self, log: str, request: AppendRequest) -> int | None:
        """Append a batch to a staging log so that Lua only learns where it lies; return None where that cannot be."""
        key = apart_key(log, self._new_epoch())
        answers = await self._connections.run_together(
            ("SET", key, request.batch, "PX", ORPHANED_MS),
            evaluation(scripts.ADOPT, (*log_keys(log), key), self._now, request.count, len(request.batch)),
        )
        if answers is None:
            return None
        if answers[1] is None:
            raise staging_gone(log)
        return int(answers[1])

    async def _append_by_script(self, log: str, request: AppendRequest) -> int:
        keys = log_keys(log)
        settings = self._append_settings(log, request.retain)
        if request.mirror is not None:
            keys += log_keys(request.mirror)
            settings += (*self._append_settings(request.mirror, request.mirror_retain), log, request.mirror)
        capacity = NOTHING if request.capacity is None else request.capacity
        script = scripts.APPEND_PLAIN if request.is_plain else scripts.APPEND
        mark = request.mark
        answer = await self._run(script, keys, request.batch, request.count, capacity, *_marked(mark), *settings)
        if answer is None:
            raise staging_gone(log)
        if mark is not None and isinstance(answer, list):
            raise AlreadyAppended(log, mark.source, *answer)
        if answer <= 0:
            raise LogFull(log, room=-answer)
        return int(answer)

    async def _transfer(self, staging: str, log: str, request: TransferRequest) -> int:
        mirror, mark = request.mirror, request.mark
        keys = log_keys(log) + log_keys(staging)
        mirror_settings: tuple[Argument, ...] = (NOTHING,) * 7
        if mirror is not None:
            keys += log_keys(mirror)
            mirror_settings = (*self._append_settings(mirror, request.mirror_retain), log, mirror)
        settings = *_marked(mark), *self._append_settings(log, request.retain), *mirror_settings
        answer = await self._run(scripts.TRANSFER, keys, *settings, *request.batches)
        if mark is not None and isinstance(answer, list):
            raise AlreadyAppended(log, mark.source, *answer)
        if answer < 0:
            raise staging_lost(staging, -answer)
        return int(answer)

    def _append_settings(self, log: str, retain: Retention) -> tuple[Argument, ...]:
        # Without an epoch, nothing is created.
        epoch = NOTHING if is_staging(log) else self._new_epoch()
        return epoch, self._channels.of_growth(log), *limits_of(retain)

    def _new_epoch(self) -> str:
        """Return a text that no log has had yet. Most are not used: only a script knows whether a log is new."""
        return f"{self._epoch_prefix}{next(self._epochs):x}"

    async def _unmark(self, log: str, source: str) -> None:
        await self._run(scripts.UNMARK, log_keys(log), mark_field(source))

    async def _read(self, log: str, after: int, limit: int, max_bytes: int) -> Slice:
        size = self._sizes.get(log, 0)
        found = await self._read_large(log, after, limit, max_bytes, size) if size >= LARGE_BYTES else None
        if found is None:
            found = await self._read_small(log, after, limit, max_bytes)
        if found.batches:
            self._sizes[log] = sum(len(batch.blob) for batch in found.batches) // len(found.batches)
            if len(self._sizes) > MAX_SIZES:
                del self._sizes[next(iter(self._sizes))]
        return found

    async def _read_small(self, log: str, after: int, limit: int, max_bytes: int) -> Slice:
        answer = await self._run(scripts.READ, log_keys(log), after, limit, max_bytes)
        if answer is None:
            return Slice((), 1, 0, "")
        first_id, last_id, epoch, entries = answer
        return Slice([batch_of(entry) for entry in entries], first_id, last_id, epoch.decode())

    async def _read_large(self, log: str, after: int, limit: int, max_bytes: int, size: int) -> Slice | None:
        """Read batches without Lua, if that can be done: as many as will do if all have this size, but not too many."""
        keys = log_keys(log)
        count = min(max(max_bytes // size, 1), limit, LARGE_AT_ONCE)
        command = ("XRANGE", keys[1], after + 1, "+", "COUNT", count)
        both = await self._connections.run_together(evaluation(scripts.HEAD, keys, self._now), command)
        if both is None or both[0] is None:
            return None
        (first_id, last_id, epoch), entries = both
        apart = await self._apart(entries)
        if apart is None:
            return None
        batches = [batch_of(entry, blob) for entry, blob in zip(entries, apart, strict=True)]
        return Slice(fitting(batches, max(after, first_id - 1), limit, max_bytes), first_id, last_id, epoch.decode())

    async def _apart(self, entries: Sequence[Entry]) -> Sequence[bytes | None] | None:
        """Return those batches of entries that lie apart from them; None if one was deleted meanwhile."""
        keys = [apart_of(entry) for entry in entries]
        wanted = [key for key in keys if key is not None]
        if not wanted:
            return keys
        found = dict(zip(wanted, await self._connections.values(wanted), strict=True))
        return None if None in found.values() else [None if key is None else found[key] for key in keys]

    async def _claim(self, log: str, request: ClaimRequest) -> Claim:
        channel = NOTHING
        if request.waiter is not None:
            channel = self._channels.of_waiter(request.waiter.token)
            if self.switchboard.expect(request.waiter):
                await self._signals.start(channel)
        answer = await self._run(
            scripts.CLAIM,
            log_keys(log),
            request.limit,
            request.max_bytes,
            NOTHING if request.lease_ms is None else request.lease_ms,
            int(request.redeliver),
            request.owner,
            channel,
            *sweep_of(request.settle),
        )
        return Claim((), (), ranges_of(request.settle)) if answer is None else claim_of(answer)

    async def _settle(self, log: str, leases: Sequence[Lease]) -> Lost:
        return await self._change_leases(log, "settle", leases)

    async def _release(self, log: str, leases: Sequence[Lease], delay_ms: int, attempted: bool) -> Lost:
        return await self._change_leases(log, "release", leases, wait_ms=delay_ms, attempts=0 if attempted else -1)

    async def _extend(self, log: str, leases: Sequence[Lease], lease_ms: int) -> Lost:
        return await self._change_leases(log, "extend", leases, wait_ms=lease_ms)

    async def _change_leases(
        self, log: str, action: str, leases: Sequence[Lease], *, wait_ms: int = 0, attempts: int = 0
    ) -> Lost:
        channel = self._channels.of_growth(log)
        answer = await self._run(scripts.CHANGE, log_keys(log), action, wait_ms, attempts, channel, *sweep_of(leases))
        return ranges_of(leases) if answer is None else lost_of(answer)

    async def _trim(self, log: str, retain: Retention) -> int:
        first_id: int | None = await self._run(scripts.TRIM, log_keys(log), *limits_of(retain))
        return 1 if first_id is None else first_id

    async def _forget_before(self, log: str, before: int, epoch: str) -> int:
        first_id: int | None = await self._run(scripts.FORGET, log_keys(log), before, epoch)
        return 1 if first_id is None else first_id

    async def _stat(self, log: str) -> LogStat | None:
        answer = await self._run(scripts.STAT, log_keys(log))
        return None if answer is None else stat_of(answer)

    async def _unfinished(self, log: str) -> list[Span]:
        answer = await self._run(scripts.UNFINISHED, log_keys(log))
        return [] if answer is None else spans_of(answer)

    async def _touch(self, log: str, ttl_ms: int | None, create: bool) -> bool:
        ttl = NOTHING if ttl_ms is None else ttl_ms
        return bool(await self._run(scripts.TOUCH, log_keys(log), ttl, self._new_epoch() if create else NOTHING))

    async def _clear(self, log: str) -> None:
        await self._run(scripts.CLEAR, log_keys(log))

    async def _drop(self, log: str) -> bool:
        return bool(await self._run(scripts.DROP, log_keys(log)))

    async def _list_logs(self, prefix: str) -> list[str]:
        now_ms = self.options.clock() if self.options.clock else await self._connections.now_ms()
        names: set[str] = set()
        async for keys in self._connections.keys(log_pattern(prefix)):
            expiries = await self._connections.expiries(keys)
            names.update(
                log_of_key(key)
                for key, expires in zip(keys, expiries, strict=True)
                if expires is not None and not 0 < expires <= now_ms
            )
        return list(names)

    async def _holds(self, place: str) -> bool:
        keys = log_keys(place)[0], log_keys(anchor_of(place))[0], record_key(place)
        return bool(await self._run(scripts.PRESENT, keys))

    # Records

    async def _get(self, name: str) -> Record | None:
        answer = await self._run(scripts.GET, [record_key(name)])
        if answer is None:
            return None
        fields = dict(zip(answer[::2], answer[1::2], strict=True))
        return Record(int(fields[b"version"]), user_fields(fields.items()))

    async def _put(
        self, name: str, fields: Mapping[str, bytes | None], expected: int | None, ttl_ms: int | None
    ) -> int:
        set_fields = [part for field, value in fields.items() if value is not None for part in (to_field(field), value)]
        accepted, version = await self._run(
            scripts.PUT,
            [record_key(name)],
            NOTHING if expected is None else expected,
            NOTHING if ttl_ms is None else ttl_ms,
            # A record that comes back must not have a version that somebody remembers.
            secrets.randbits(40),
            len(set_fields) // 2,
            *set_fields,
            *(to_field(field) for field, value in fields.items() if value is None),
        )
        if not accepted:
            raise _conflict(name, version, expected)
        return int(version)

    async def _delete(self, name: str, expected: int | None) -> bool:
        answer = await self._run(scripts.DELETE, [record_key(name)], NOTHING if expected is None else expected)
        accepted, version = answer
        if not accepted:
            raise _conflict(name, version, expected)
        return bool(version)

    # Signals

    async def _signal(self, name: str, payload: bytes) -> int:
        return await self._connections.publish(self._channels.of_signal(name), payload)

    async def _start_listening(self, name: str) -> None:
        await self._signals.start(self._channels.of_signal(name))

    async def _stop_listening(self, name: str) -> None:
        await self._signals.stop(self._channels.of_signal(name))

    async def _start_watching(self, log: str) -> None:
        await self._signals.start(self._channels.of_growth(log))

    async def _stop_watching(self, log: str) -> None:
        await self._signals.stop(self._channels.of_growth(log))

    async def _stop_waiting(self, log: str, waiter: Watch, owner: str) -> Sequence[Lease]:
        channel = self._channels.of_waiter(waiter.token)
        self.switchboard.forget(waiter)
        held = await self._run(scripts.UNWAIT, log_keys(log), channel, owner)
        await self._signals.stop(channel)
        return [Lease(first, last, fence) for first, last, fence in zip(held[::3], held[1::3], held[2::3], strict=True)]

    async def _inspect(self) -> Inspection:
        return await inspect_redis(self._address, self._connections)

    async def _run(self, script: Script, keys: Sequence[bytes], *arguments: Argument) -> Any:
        return await self._connections.run(script, keys, self._now, *arguments)

    @property
    def _now(self) -> Argument:
        """The time for a script; without a clock of its own it asks Redis."""
        return self.options.clock() if self.options.clock else NOTHING


def _marked(mark: Mark | None) -> tuple[Argument, Argument]:
    return (NOTHING, NOTHING) if mark is None else (mark_field(mark.source), mark.number)


def _connections_to(address: Address, deadline_seconds: float) -> Connections:
    connect_seconds = min(MAX_CONNECT_SECONDS, deadline_seconds)
    match address.mode:
        case Mode.SINGLE:
            return ServerConnections(address, connect_seconds)
        case Mode.SENTINEL:
            return SentinelConnections(address, connect_seconds)
        case Mode.CLUSTER:
            return ClusterConnections(address, connect_seconds)


def _conflict(name: str, version: int, expected: int | None) -> VersionConflict:
    return VersionConflict(f"The record {name!r} has version {version}, not {expected}. Read it again.")
