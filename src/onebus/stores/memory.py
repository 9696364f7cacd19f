"""A store in the memory of this process: the rules of the contract, and nothing else.

``memory://`` is a store of its own. ``memory://name`` is shared by all stores of this process that are
opened under that name, and is forgotten when the last of them is closed. They may live in different threads, each
with an event loop of its own.
"""

import asyncio
import secrets
import threading
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from onebus.errors import AlreadyAppended, LogFull, VersionConflict
from onebus.log.claims import FREE, NO_FENCE, Hold, HoldTable, Lease, ranges_of
from onebus.log.mark import Mark
from onebus.log.names import anchor_of, is_staging
from onebus.log.retention import KEEP_ALL, Retention
from onebus.log.stored import StoredBatch, Twin
from onebus.stores.base import (
    AppendRequest,
    Claim,
    ClaimRequest,
    Finding,
    Inspection,
    LogStat,
    Lost,
    Record,
    Slice,
    Span,
    Store,
    StoreOptions,
    TransferRequest,
    Verdict,
    check_staged,
    fitting,
    spans_of,
    staging_gone,
)

T = TypeVar("T")

COMPACT_AFTER = 1000


class BatchShelf:
    """The batches of one log by their last id. Removing one costs the same wherever it stands."""

    def __init__(self) -> None:
        self._batches: dict[int, StoredBatch] = {}
        self._last_ids: list[int] = []
        self._start = 0

    def add(self, batch: StoredBatch) -> None:
        self._batches[batch.last_id] = batch
        self._last_ids.append(batch.last_id)

    def remove(self, batch: StoredBatch) -> None:
        # The id stays in the list until the list is mostly made of such leftovers.
        del self._batches[batch.last_id]
        while self._start < len(self._last_ids) and self._last_ids[self._start] not in self._batches:
            self._start += 1
        if len(self._last_ids) > 2 * len(self._batches) + COMPACT_AFTER:
            self._last_ids = [last_id for last_id in self._last_ids if last_id in self._batches]
            self._start = 0

    def since(self, first_id: int) -> Iterator[StoredBatch]:
        """Yield the batches from the one that covers `first_id` on."""
        index = bisect_left(self._last_ids, first_id, lo=self._start)
        for last_id in islice(self._last_ids, index, None):
            batch = self._batches.get(last_id)
            if batch is not None:
                yield batch

    def oldest(self) -> StoredBatch | None:
        return next(self.since(0), None)


@dataclass(slots=True)
class MemoryLog:
    """One log and its claims."""

    epoch: str = field(default_factory=lambda: secrets.token_hex(8))
    first_id: int = 1
    last_id: int = 0
    head: int = 1
    fence: int = 0
    bytes_appended: int = 0
    ttl_ms: int = 0
    expires_ms: int = 0
    shelf: BatchShelf = field(default_factory=BatchShelf)
    ends_at_byte: dict[int, int] = field(default_factory=dict)
    holds: HoldTable = field(default_factory=HoldTable)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The number of the newest append of each source, and the id of its first message."""

    def append(self, blob: bytes, count: int, now_ms: int, twin: Twin | None = None) -> int:
        first_id = self.last_id + 1
        self.last_id += count
        self.bytes_appended += len(blob)
        self.ends_at_byte[self.last_id] = self.bytes_appended
        self.shelf.add(StoredBatch(self.last_id, count, blob, now_ms, twin))
        return first_id

    def claim(self, request: ClaimRequest, now_ms: int) -> Claim:
        lost = self.settle(request.settle, now_ms)
        self.discard(self.holds.free_due(now_ms))
        self.fence += 1
        fence = NO_FENCE if request.lease_ms is None else self.fence
        taken, batches = self._take(request, fence)
        if request.lease_ms is None:
            self.discard(taken)
        else:
            for hold in taken:
                self.holds.add(
                    replace(hold, due_ms=now_ms + request.lease_ms, redeliver=request.redeliver, owner=request.owner)
                )
        retry_after_seconds = None
        due_ms = self.holds.next_due_ms()
        if due_ms is not None and sum(hold.count for hold in taken) < request.limit:
            retry_after_seconds = max(due_ms - now_ms, 0) / 1000
        return Claim([hold.lease() for hold in taken], batches, lost, retry_after_seconds)

    def _take(self, request: ClaimRequest, fence: int) -> tuple[list[Hold], list[StoredBatch]]:
        taken: list[Hold] = []
        batches: dict[int, StoredBatch] = {}
        room, room_bytes = request.limit, request.max_bytes
        while room > 0:
            free = self.holds.take_free(room)
            wanted = free or self._take_new(room)
            if not wanted:
                break
            for index, hold in enumerate(wanted):
                last_id, room_bytes = self._collect(hold, batches, room_bytes)
                if last_id >= hold.first:
                    taken.append(replace(hold, last=last_id, fence=fence, attempts=hold.attempts + 1))
                    room -= last_id - hold.first + 1
                if last_id < hold.last:
                    self._give_back(replace(hold, first=last_id + 1), is_new=not free)
                    for later in wanted[index + 1 :]:
                        self.holds.add(later)
                    return taken, list(batches.values())
        return taken, list(batches.values())

    def _take_new(self, limit: int) -> list[Hold]:
        first, last = self.head, min(self.last_id, self.head + limit - 1)
        if first > last:
            return []
        self.head = last + 1
        return [Hold(first, last, NO_FENCE, FREE, attempts=0)]

    def _give_back(self, hold: Hold, *, is_new: bool) -> None:
        if is_new:
            self.head = hold.first
        else:
            self.holds.add(hold)

    def _collect(self, hold: Hold, batches: dict[int, StoredBatch], room_bytes: int) -> tuple[int, int]:
        """Add the batches that cover `hold` while they fit; return the last id covered and the bytes left."""
        last_id = hold.first - 1
        for batch in self.shelf.since(hold.first):
            if batch.first_id > hold.last:
                break
            if batch.last_id not in batches:
                if batches and len(batch.blob) > room_bytes:
                    break
                batches[batch.last_id] = batch
                room_bytes -= len(batch.blob)
            last_id = min(batch.last_id, hold.last)
        return last_id, room_bytes

    def settle(self, leases: Sequence[Lease], now_ms: int) -> Lost:
        carving = self.holds.carve(leases, now_ms=now_ms)
        self.discard(carving.taken)
        return carving.lost

    def put_back(self, leases: Sequence[Lease], due_ms: int, *, fence: int | None, attempts: int, now_ms: int) -> Lost:
        """Set leased ids to another due time, and to no fence when they are released."""
        carving = self.holds.carve(leases, now_ms=now_ms)
        for hold in carving.taken:
            self.holds.add(hold.put_back(due_ms, fence=fence, attempts=attempts))
        return carving.lost

    def discard(self, done: Sequence[Hold]) -> None:
        """Delete the batches that had their last open message among `done`."""
        for hold in done:
            for batch in list(self._covering(hold)):
                if batch.last_id < self.head and not self.holds.overlapping(batch.first_id, batch.last_id):
                    self._remove(batch)

    def _covering(self, hold: Hold) -> Iterator[StoredBatch]:
        for batch in self.shelf.since(hold.first):
            if batch.first_id > hold.last:
                return
            yield batch

    def _remove(self, batch: StoredBatch) -> None:
        self.shelf.remove(batch)
        del self.ends_at_byte[batch.last_id]

    def take_out(self, name: str, last_ids: Sequence[int]) -> list[StoredBatch]:
        """Remove batches, and return them in the order asked for."""
        there = {batch.last_id: batch for batch in self.shelf.since(0)}
        check_staged(name, last_ids, there)
        batches = [there[last_id] for last_id in last_ids]
        for batch in batches:
            self._remove(batch)
        return batches

    def check_mark(self, name: str, mark: Mark) -> None:
        number, first_id = self.marks.get(mark.source, (-1, 0))
        if mark.number <= number:
            raise AlreadyAppended(name, mark.source, number, first_id)

    def check_capacity(self, name: str, capacity: int, request: AppendRequest, now_ms: int) -> None:
        count = request.count
        first_id = self._first_id_to_keep(request.retain, now_ms, count=count, size=len(request.batch))
        held = sum(hold.last - max(hold.first, first_id) + 1 for hold in self.holds.overlapping(first_id, self.last_id))
        unfinished = held + max(self.last_id - max(self.head, first_id) + 1, 0)
        added = min(count, self.last_id + count - first_id + 1)
        if unfinished + added > capacity:
            raise LogFull(name, max(capacity - unfinished, 0))

    def trim(self, retain: Retention, now_ms: int) -> None:
        self.forget_before(self._first_id_to_keep(retain, now_ms))

    def _first_id_to_keep(self, retain: Retention, now_ms: int, *, count: int = 0, size: int = 0) -> int:
        """Return the oldest id that remains, once a batch of `count` messages and `size` bytes has been added."""
        first_id, newest_id = self.first_id, self.last_id + count
        if retain.max_count is not None:
            first_id = max(first_id, newest_id - retain.max_count + 1)
        for batch in self.shelf.since(first_id):
            bytes_since = self.bytes_appended + size - self.ends_at_byte[batch.last_id] + len(batch.blob)
            is_newest = batch.last_id == newest_id
            if not retain.forgets(age_ms=now_ms - batch.appended_ms, bytes_since=bytes_since, is_newest=is_newest):
                break
            first_id = batch.last_id + 1
        return first_id

    def forget_before(self, first_id: int) -> None:
        if first_id <= self.first_id:
            return
        self.first_id = first_id
        self.head = max(self.head, first_id)
        for hold in self.holds.overlapping(0, first_id - 1):
            self.holds.remove(hold)
            if hold.last >= first_id:
                self.holds.add(replace(hold, first=first_id))
        for batch in list(self.shelf.since(0)):
            if batch.last_id >= first_id:
                break
            self._remove(batch)
        # What is left of the batch that was cut may all be done by now.
        self.discard([Hold(first_id, first_id, NO_FENCE, FREE, attempts=0)])

    def stat(self, now_ms: int) -> LogStat:
        free = sum(hold.count for hold in self.holds if hold.due_ms <= now_ms)
        held = sum(hold.count for hold in self.holds if hold.due_ms > now_ms)
        oldest = self.shelf.oldest()
        return LogStat(
            epoch=self.epoch,
            first_id=self.first_id,
            last_id=self.last_id,
            head=self.head,
            claimable=self.last_id - self.head + 1 + free,
            held=held,
            bytes=self.bytes_appended - self.ends_at_byte[oldest.last_id] + len(oldest.blob) if oldest else 0,
            ttl_seconds=self.ttl_ms / 1000,
        )

    def unfinished(self, now_ms: int) -> list[Span]:
        return spans_of(self.holds, self.head, self.last_id, now_ms)


@dataclass(slots=True)
class MemoryRecord:
    version: int
    fields: dict[str, bytes]
    ttl_ms: int = 0
    expires_ms: int = 0


@dataclass(slots=True)
class Memory:
    """What the stores opened under one name share."""

    logs: dict[str, MemoryLog] = field(default_factory=dict)
    records: dict[str, MemoryRecord] = field(default_factory=dict)
    stores: list["MemoryStore"] = field(default_factory=list)
    using: threading.Lock = field(default_factory=threading.Lock)


_shared: dict[str, Memory] = {}
_sharing = threading.Lock()


class MemoryStore(Store):
    """Keeps everything in this process; for tests, for caches, and for a bus that need not survive."""

    def __init__(self, name: str = "", options: StoreOptions | None = None) -> None:
        super().__init__(f"memory://{name}", options)
        self._name = name
        self._memory = Memory()
        self._now_ms = self.options.clock or _wall_clock_ms
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        with _sharing:
            if self._name:
                self._memory = _shared.setdefault(self._name, Memory())
            self._memory.stores = [*self._memory.stores, self]

    async def _close(self) -> None:
        with _sharing:
            self._memory.stores = [store for store in self._memory.stores if store is not self]
            if not self._memory.stores and _shared.get(self._name) is self._memory:
                del _shared[self._name]

    async def _call(self, operation: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        async def alone() -> T:
            # Nothing here ever waits, so no other thread does for longer than one operation takes.
            with self._memory.using:
                return await operation()

        return await super()._call(alone, repeatable=repeatable)

    async def _probe(self) -> None:
        return

    async def _append(self, log: str, request: AppendRequest) -> int:
        now_ms = self._now_ms()
        if request.mark is not None:
            (self._find(log) or MemoryLog()).check_mark(log, request.mark)
        if request.capacity is not None:
            (self._find(log) or MemoryLog()).check_capacity(log, request.capacity, request, now_ms)
        first_id = self._append_both(log, request, now_ms)
        if request.mark is not None:
            self._memory.logs[log].marks[request.mark.source] = request.mark.number, first_id
        return first_id

    def _append_both(self, log: str, request: AppendRequest, now_ms: int) -> int:
        mirror = request.mirror
        if mirror is None:
            return self._append_one(log, request, request.retain, now_ms)
        mirrored = self._find(mirror)
        twin = Twin(mirror, 1 if mirrored is None else mirrored.last_id + 1)
        first_id = self._append_one(log, request, request.retain, now_ms, twin)
        self._append_one(mirror, request, request.mirror_retain, now_ms, Twin(log, first_id))
        return first_id

    def _append_one(
        self, name: str, request: AppendRequest, retain: Retention, now_ms: int, twin: Twin | None = None
    ) -> int:
        log = self._find(name)
        if log is None and is_staging(name):
            raise staging_gone(name)
        log = log or self._memory.logs.setdefault(name, MemoryLog())
        first_id = log.append(request.batch, request.count, now_ms, twin)
        if log.ttl_ms:
            log.expires_ms = now_ms + log.ttl_ms
        if retain is not KEEP_ALL:
            log.trim(retain, now_ms)
        self._wake(name)
        return first_id

    async def _transfer(self, staging: str, log: str, request: TransferRequest) -> int:
        if request.mark is not None:
            (self._find(log) or MemoryLog()).check_mark(log, request.mark)
        staged = self._find(staging) or MemoryLog()
        batches = staged.take_out(staging, request.batches)
        now_ms = self._now_ms()
        first_id, *_ = [self._append_both(log, request.of_batch(batch), now_ms) for batch in batches]
        if request.mark is not None:
            self._memory.logs[log].marks[request.mark.source] = request.mark.number, first_id
        return first_id

    async def _unmark(self, log: str, source: str) -> None:
        found = self._find(log)
        if found is not None:
            found.marks.pop(source, None)

    async def _read(self, log: str, after: int, limit: int, max_bytes: int) -> Slice:
        found = self._find(log)
        if found is None:
            return Slice((), 1, 0, "")
        after = max(after, found.first_id - 1)
        batches = fitting(found.shelf.since(after + 1), after, limit, max_bytes)
        return Slice(batches, found.first_id, found.last_id, found.epoch)

    async def _claim(self, log: str, request: ClaimRequest) -> Claim:
        found = self._find(log)
        if found is None:
            return Claim((), (), ranges_of(request.settle))
        return found.claim(request, self._now_ms())

    async def _settle(self, log: str, leases: Sequence[Lease]) -> Lost:
        found = self._find(log)
        return ranges_of(leases) if found is None else found.settle(leases, self._now_ms())

    async def _release(self, log: str, leases: Sequence[Lease], delay_ms: int, attempted: bool) -> Lost:
        found = self._find(log)
        if found is None:
            return ranges_of(leases)
        now_ms = self._now_ms()
        due_ms = now_ms + delay_ms if delay_ms else FREE
        lost = found.put_back(leases, due_ms, fence=NO_FENCE, attempts=0 if attempted else -1, now_ms=now_ms)
        self._wake(log)
        return lost

    async def _extend(self, log: str, leases: Sequence[Lease], lease_ms: int) -> Lost:
        found = self._find(log)
        if found is None:
            return ranges_of(leases)
        now_ms = self._now_ms()
        return found.put_back(leases, now_ms + lease_ms, fence=None, attempts=0, now_ms=now_ms)

    async def _trim(self, log: str, retain: Retention) -> int:
        found = self._find(log)
        if found is None:
            return 1
        found.trim(retain, self._now_ms())
        return found.first_id

    async def _forget_before(self, log: str, before: int, epoch: str) -> int:
        found = self._find(log)
        if found is None:
            return 1
        if found.epoch == epoch:
            found.forget_before(min(before, found.last_id + 1))
        return found.first_id

    async def _stat(self, log: str) -> LogStat | None:
        found = self._find(log)
        return None if found is None else found.stat(self._now_ms())

    async def _unfinished(self, log: str) -> list[Span]:
        found = self._find(log)
        return [] if found is None else found.unfinished(self._now_ms())

    async def _touch(self, log: str, ttl_ms: int | None, create: bool) -> bool:
        found = self._find(log)
        existed = found is not None
        if found is None:
            if not create:
                return False
            found = self._memory.logs[log] = MemoryLog()
        if ttl_ms is not None and not (existed and create):
            found.ttl_ms = ttl_ms
        found.expires_ms = self._now_ms() + found.ttl_ms if found.ttl_ms else 0
        return existed

    async def _clear(self, log: str) -> None:
        found = self._find(log)
        if found is not None:
            found.forget_before(found.last_id + 1)

    async def _drop(self, log: str) -> bool:
        existed = self._find(log) is not None
        self._memory.logs.pop(log, None)
        return existed

    async def _list_logs(self, prefix: str) -> list[str]:
        return [name for name in list(self._memory.logs) if name.startswith(prefix) and self._find(name)]

    async def _holds(self, place: str) -> bool:
        return any((self._find(place), self._find(anchor_of(place)), self._find_record(place)))

    async def _get(self, name: str) -> Record | None:
        record = self._find_record(name)
        return None if record is None else Record(record.version, dict(record.fields))

    async def _put(
        self, name: str, fields: Mapping[str, bytes | None], expected: int | None, ttl_ms: int | None
    ) -> int:
        record = self._find_record(name)
        _check_version(name, record, expected)
        if record is None:
            record = self._memory.records[name] = MemoryRecord(secrets.randbits(40), {})
        record.version += 1
        merged = {**record.fields, **fields}
        record.fields = {key: value for key, value in merged.items() if value is not None}
        if ttl_ms is not None:
            record.ttl_ms = ttl_ms
        record.expires_ms = self._now_ms() + record.ttl_ms if record.ttl_ms else 0
        return record.version

    async def _delete(self, name: str, expected: int | None) -> bool:
        record = self._find_record(name)
        _check_version(name, record, expected)
        return self._memory.records.pop(name, None) is not None

    async def _signal(self, name: str, payload: bytes) -> int:
        return sum(store._hear(name, payload) for store in self._memory.stores)

    async def _inspect(self) -> Inspection:
        durability = Finding(
            "durability",
            "Messages live in this process only and are gone when it ends.",
            Verdict.BAD,
            "Use sqlite:///bus.db to keep them.",
        )
        return Inspection("memory", "", [durability])

    def _find(self, name: str) -> MemoryLog | None:
        log = self._memory.logs.get(name)
        if log is not None and 0 < log.expires_ms <= self._now_ms():
            del self._memory.logs[name]
            return None
        return log

    def _find_record(self, name: str) -> MemoryRecord | None:
        record = self._memory.records.get(name)
        if record is not None and 0 < record.expires_ms <= self._now_ms():
            del self._memory.records[name]
            return None
        return record

    def _wake(self, log: str) -> None:
        for store in self._memory.stores:
            store._in_its_thread(store.switchboard.wake, log)

    def _hear(self, name: str, payload: bytes) -> bool:
        is_heard = self.switchboard.hears(name)
        if is_heard:
            self._in_its_thread(self.switchboard.deliver, name, payload)
        return is_heard

    def _in_its_thread(self, tell: Callable[..., object], *news: object) -> None:
        if self._loop is asyncio.get_running_loop():
            tell(*news)
        elif self._loop is not None:
            # The loop is closed when a program ends without closing its store: nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(tell, *news)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _check_version(name: str, record: MemoryRecord | None, expected: int | None) -> None:
    version = 0 if record is None else record.version
    if expected is not None and expected != version:
        raise VersionConflict(f"The record {name!r} has version {version}, not {expected}. Read it again.")
