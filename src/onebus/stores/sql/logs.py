"""What a transaction does to a log. The row of the log is locked first, which puts its writers in order."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Select, Update, bindparam, delete, func, insert, or_, select, update

from onebus.errors import AlreadyAppended, LogFull
from onebus.log.claims import FREE, NO_FENCE, Hold, Lease
from onebus.log.mark import Mark
from onebus.log.names import anchor_of
from onebus.log.retention import KEEP_ALL, Retention
from onebus.log.stored import StoredBatch, Twin
from onebus.stores.base import Claim, ClaimRequest, LogStat, Lost, Slice, Span, check_staged, spans_of
from onebus.stores.news import News, note
from onebus.stores.sql.holds import HoldRows
from onebus.stores.sql.inserts import insert_if_absent, upsert
from onebus.stores.sql.tables import batches, logs, marks, text_of
from onebus.stores.sql.transaction import Transaction

FREE_HOLDS_AT_ONCE = 500
FRONT_BATCHES_AT_ONCE = 100
IDS_TRIED = 8
"""So often an id that would be good is chosen, until any other will do."""

_of_log = batches.c.log_id == bindparam("log")
_batch_columns = (
    batches.c.last_id,
    batches.c.count,
    batches.c.blob,
    batches.c.appended_ms,
    batches.c.twin_log,
    batches.c.twin_first_id,
)
_insert_batch = insert(batches)
_delete_log = delete(logs).where(logs.c.id == bindparam("log"))
_of_source = marks.c.log_id == bindparam("log"), marks.c.source == bindparam("mark_source")
_find_mark = select(marks.c.number, marks.c.first_id).where(*_of_source)
_delete_mark = delete(marks).where(*_of_source)
_delete_marks = delete(marks).where(marks.c.log_id == bindparam("log"))
_NEW_LOG = {
    "first_id": 1,
    "last_id": 0,
    "head": 1,
    "fence": 0,
    "bytes_appended": 0,
    "ttl_ms": 0,
    "expires_ms": 0,
}
NEVER = 2**62
"""An id that no log reaches."""


@cache
def _update_log(*columns: str) -> Update:
    values: dict[str, Any] = {column: bindparam(f"new_{column}") for column in columns}
    return update(logs).where(logs.c.id == bindparam("log")).values(values)


def _lowest(column: ColumnElement[int], at_least: str) -> ColumnElement[int]:
    """Return `column` of the first batch that reaches the id given as `at_least`."""
    return (
        select(column)
        .where(_of_log, batches.c.last_id >= bindparam(at_least))
        .order_by(batches.c.last_id)
        .limit(1)
        .scalar_subquery()
    )


def _covering(*columns: ColumnElement[Any]) -> Select[Any]:
    """Select the batches that share ids with ``first..last``, oldest first."""
    return (
        select(*columns)
        .where(
            _of_log,
            batches.c.last_id >= bindparam("first"),
            batches.c.last_id <= func.coalesce(_lowest(batches.c.last_id, "last"), bindparam("last")),
        )
        .order_by(batches.c.last_id)
    )


_bounds_covering = _covering(batches.c.last_id, batches.c.count)
# Within a range that is read or held no batch is missing, so the bytes between two batches are a difference.
_batches_covering = _covering(*_batch_columns).where(
    or_(
        batches.c.end_byte <= _lowest(batches.c.end_byte - batches.c.size, "first") + bindparam("max_bytes"),
        batches.c.last_id == _lowest(batches.c.last_id, "sure"),
    )
)
_front = (
    select(batches.c.last_id, batches.c.size, batches.c.end_byte, batches.c.appended_ms)
    .where(_of_log, batches.c.last_id >= bindparam("first"))
    .order_by(batches.c.last_id)
    .limit(bindparam("limit"))
)
_oldest_start = select(batches.c.end_byte - batches.c.size).where(_of_log).order_by(batches.c.last_id).limit(1)
_between = _of_log, batches.c.last_id >= bindparam("first"), batches.c.last_id <= bindparam("last")
_sizes_between = select(batches.c.last_id, batches.c.count, batches.c.size).where(*_between)
_batches_between = select(*_batch_columns).where(*_between)
_delete_between = delete(batches).where(*_between)
_move_batch = (
    update(batches)
    .where(batches.c.log_id == bindparam("staging"), batches.c.last_id == bindparam("staged_id"))
    .values({name: bindparam(f"new_{name}") for name in ("log_id", "last_id", "end_byte", "appended_ms")})
)


@dataclass(slots=True)
class LogRow:
    """The row of a log as the transaction found it, and changes it."""

    name: str
    id: int
    epoch: str
    first_id: int
    last_id: int
    head: int
    fence: int
    bytes_appended: int
    ttl_ms: int
    expires_ms: int
    now_ms: int


class SqlLog:
    """One log within a transaction that has locked it, or only reads it."""

    def __init__(self, transaction: Transaction, row: LogRow) -> None:
        self._transaction = transaction
        self._row = row
        self._holds = HoldRows(transaction, row.id)

    @property
    def epoch(self) -> str:
        return self._row.epoch

    @property
    def id(self) -> int:
        return self._row.id

    @property
    def position(self) -> dict[str, int]:
        """Where the log is, in the columns of an empty log that goes on from there."""
        row = self._row
        return {
            "first_id": row.last_id + 1,
            "last_id": row.last_id,
            "head": row.last_id + 1,
            "bytes_appended": row.bytes_appended,
        }

    @property
    def next_id(self) -> int:
        """The id that the next message gets."""
        return self._row.last_id + 1

    def append(
        self, blob: bytes, count: int, twin: Twin | None, retain: Retention, *, capacity: int | None = None
    ) -> int:
        row = self._row
        first_id = row.last_id + 1
        row.last_id += count
        row.bytes_appended += len(blob)
        row.expires_ms = row.now_ms + row.ttl_ms if row.ttl_ms else 0
        first_kept = row.first_id if retain is KEEP_ALL else self._first_id_to_keep(retain)
        if capacity is not None:
            self._check_capacity(capacity, count, first_kept)
        self._transaction.execute(
            _insert_batch,
            {
                "log_id": row.id,
                "last_id": row.last_id,
                "count": count,
                "size": len(blob),
                "end_byte": row.bytes_appended,
                "appended_ms": row.now_ms,
                "twin_log": twin.log if twin else None,
                "twin_first_id": twin.first_id if twin else None,
                "blob": blob,
            },
        )
        self._forget_before(first_kept)
        self._save("last_id", "bytes_appended", "expires_ms", "first_id", "head")
        self._announce(StoredBatch(row.last_id, count, blob, row.now_ms, twin))
        return first_id

    def take_over(self, staged: "SqlLog", last_ids: Sequence[int], retain: Retention) -> int:
        """Make batches of a staging log those that come next here, without touching their blobs."""
        row = self._row
        first_id = row.last_id + 1
        sizes = staged.sizes_of(last_ids)
        moves = []
        for last_id in last_ids:
            count, size = sizes[last_id]
            row.last_id += count
            row.bytes_appended += size
            moves.append(
                {
                    "staging": staged.id,
                    "staged_id": last_id,
                    "new_log_id": row.id,
                    "new_last_id": row.last_id,
                    "new_end_byte": row.bytes_appended,
                    "new_appended_ms": row.now_ms,
                }
            )
        self._transaction.perform(_move_batch, moves)
        row.expires_ms = row.now_ms + row.ttl_ms if row.ttl_ms else 0
        self._forget_before(self._first_id_to_keep(retain))
        self._save("last_id", "bytes_appended", "expires_ms", "first_id", "head")
        self._transaction.grown[row.name] = None
        return first_id

    def sizes_of(self, last_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return how many messages and bytes some batches have that must be there."""
        bounds = {"log": self._row.id, "first": min(last_ids), "last": max(last_ids)}
        found = {last_id: (count, size) for last_id, count, size in self._transaction.execute(_sizes_between, bounds)}
        check_staged(self._row.name, last_ids, found)
        return found

    def take_out(self, last_ids: Sequence[int]) -> list[StoredBatch]:
        """Delete batches that must be there, and return them in the order asked for."""
        bounds = {"log": self._row.id, "first": min(last_ids), "last": max(last_ids)}
        found = [_stored(row) for row in self._transaction.execute(_batches_between, bounds)]
        there = {batch.last_id: batch for batch in found}
        check_staged(self._row.name, last_ids, there)
        for last_id in last_ids:
            self._delete_batches(last_id, last_id)
        return [there[last_id] for last_id in last_ids]

    def check_mark(self, mark: Mark) -> None:
        found = self._transaction.execute(_find_mark, {"log": self._row.id, "mark_source": mark.source})
        if found and mark.number <= found[0][0]:
            raise AlreadyAppended(self._row.name, mark.source, *found[0])

    def put_mark(self, mark: Mark, first_id: int) -> None:
        values = {"log_id": self._row.id, "source": mark.source, "number": mark.number, "first_id": first_id}
        self._transaction.execute(upsert(self._transaction.dialect_name, marks, "number", "first_id"), values)

    def unmark(self, source: str) -> None:
        self._transaction.execute(_delete_mark, {"log": self._row.id, "mark_source": source})

    def read(self, after: int, limit: int, max_bytes: int) -> Slice:
        row = self._row
        first = max(after + 1, row.first_id)
        found: list[StoredBatch] = []
        if first <= row.last_id:
            last = min(row.last_id, max(after, row.first_id - 1) + limit)
            found = self.batches_covering(first, last, max_bytes)
            if len(found) > 1 and found[-1].last_id > last:
                found.pop()
        return Slice(found or (), row.first_id, row.last_id, row.epoch)

    def claim(self, request: ClaimRequest) -> Claim:
        row, now_ms = self._row, self._row.now_ms
        lost = self.settle(request.settle)
        basket = _Basket(self, request)
        if not self._holds.are_all_taken(now_ms):
            self._free_due()
            self._take_free(basket)
        self._take_new(basket)
        taken, found = basket.taken, basket.found
        if taken and request.lease_ms is None:
            self._discard(taken)
        elif taken and request.lease_ms is not None:
            # A fence that was forgotten in a power cut must not be given again.
            row.fence = max(row.fence + 1, now_ms)
            due_ms = now_ms + request.lease_ms
            taken = [
                replace(hold, fence=row.fence, due_ms=due_ms, redeliver=request.redeliver, owner=request.owner)
                for hold in taken
            ]
            self._holds.add(taken)
        if taken:
            self._save("head", "fence")
        retry_after_seconds = None
        if sum(hold.count for hold in taken) < request.limit:
            next_ms = self._holds.next_due_ms()
            retry_after_seconds = None if next_ms is None else max(next_ms - now_ms, 0) / 1000
        return Claim([hold.lease() for hold in taken], found, lost, retry_after_seconds)

    def settle(self, leases: Sequence[Lease]) -> Lost:
        carving = self._holds.carve(leases, now_ms=self._row.now_ms)
        self._discard(carving.taken)
        return carving.lost

    def release(self, leases: Sequence[Lease], delay_ms: int, attempted: bool) -> Lost:
        now_ms = self._row.now_ms
        due_ms = now_ms + delay_ms if delay_ms else FREE
        self._transaction.grown[self._row.name] = None
        return self._holds.put_back(leases, due_ms, fence=NO_FENCE, attempts=0 if attempted else -1, now_ms=now_ms)

    def extend(self, leases: Sequence[Lease], lease_ms: int) -> Lost:
        now_ms = self._row.now_ms
        return self._holds.put_back(leases, now_ms + lease_ms, fence=None, attempts=0, now_ms=now_ms)

    def trim(self, retain: Retention) -> int:
        self._forget_before(self._first_id_to_keep(retain))
        self._save("first_id", "head")
        return self._row.first_id

    def forget(self, before: int, epoch: str) -> int:
        if self._row.epoch == epoch:
            self._forget_before(min(before, self._row.last_id + 1))
            self._save("first_id", "head")
        return self._row.first_id

    def clear(self) -> None:
        self._forget_before(self._row.last_id + 1)
        self._save("first_id", "head")

    def touch(self, ttl_ms: int | None) -> None:
        row = self._row
        if ttl_ms is not None:
            row.ttl_ms = ttl_ms
        row.expires_ms = row.now_ms + row.ttl_ms if row.ttl_ms else 0
        self._save("ttl_ms", "expires_ms")

    def drop(self) -> None:
        self._holds.remove_all()
        self._delete_batches(0, self._row.last_id)
        self._transaction.execute(_delete_marks, {"log": self._row.id})
        self._transaction.execute(_delete_log, {"log": self._row.id})

    def stat(self) -> LogStat:
        row = self._row
        free, held = self._holds.sums(row.now_ms)
        oldest = self._transaction.execute(_oldest_start, {"log": row.id})
        return LogStat(
            epoch=row.epoch,
            first_id=row.first_id,
            last_id=row.last_id,
            head=row.head,
            claimable=row.last_id - row.head + 1 + free,
            held=held,
            bytes=row.bytes_appended - oldest[0][0] if oldest else 0,
            ttl_seconds=row.ttl_ms / 1000,
        )

    def unfinished(self) -> list[Span]:
        row = self._row
        return spans_of(self._holds.overlapping(0, row.last_id), row.head, row.last_id, row.now_ms)

    def _check_capacity(self, capacity: int, count: int, first_kept: int) -> None:
        row = self._row
        unclaimed = max(row.last_id - count - max(row.head, first_kept) + 1, 0)
        unfinished = unclaimed + self._holds.count_since(first_kept)
        added = min(count, row.last_id - first_kept + 1)
        if unfinished + added > capacity:
            raise LogFull(row.name, max(capacity - unfinished, 0))

    def _free_due(self) -> None:
        due_ms = self._holds.next_due_ms()
        if due_ms is not None and due_ms <= self._row.now_ms:
            self._discard(self._holds.free_due(self._row.now_ms))

    def _take_free(self, basket: "_Basket") -> None:
        """Take free ids while they and their batches fit."""
        while basket.has_room and (free := self._holds.free(FREE_HOLDS_AT_ONCE)):
            for index, hold in enumerate(free):
                rest = basket.put(hold)
                if rest is not None:
                    self._holds.remove(free[: index + 1])
                    self._holds.add([rest])
                    return
            self._holds.remove(free)

    def _take_new(self, basket: "_Basket") -> None:
        """Take ids that nobody has claimed yet while they and their batches fit."""
        row = self._row
        if basket.has_room and row.head <= row.last_id:
            new = Hold(row.head, min(row.last_id, row.head + basket.room - 1), NO_FENCE, FREE, attempts=0)
            rest = basket.put(new)
            row.head = new.last + 1 if rest is None else rest.first

    def batches_covering(self, first: int, last: int, max_bytes: int, sure: int | None = None) -> list[StoredBatch]:
        """Return the batches of ``first..last`` while they fit, and that of `sure`, by default the first, anyway."""
        parameters = {
            "log": self._row.id,
            "first": first,
            "last": last,
            "max_bytes": max_bytes,
            "sure": first if sure is None else sure,
        }
        return [_stored(row) for row in self._transaction.execute(_batches_covering, parameters)]

    def _discard(self, done: Sequence[Hold]) -> None:
        """Delete the batches that had their last open message among `done`."""
        for first, last in _joined(done):
            self._delete_finished(first, last, done=range(first, last + 1))

    def _delete_finished(self, first: int, last: int, *, done: range = range(0)) -> None:
        """Delete the batches that share ids with ``first..last`` and have no open ones, as those in `done` are not."""
        found = self._transaction.execute(_bounds_covering, {"log": self._row.id, "first": first, "last": last})
        bounds = [(last_id - count + 1, last_id) for last_id, count in found if last_id < self._row.head]
        if not bounds:
            return
        begin, end = bounds[0][0], bounds[-1][1]
        # Mostly whole batches are done, and there is no need to look for what else is held.
        open_holds = [] if begin in done and end in done else self._holds.overlapping(begin, end)
        for run_first, run_last in _runs_without(bounds, open_holds):
            self._delete_batches(run_first, run_last)

    def _delete_batches(self, first: int, last: int) -> None:
        self._transaction.execute(_delete_between, {"log": self._row.id, "first": first, "last": last})

    def _first_id_to_keep(self, retain: Retention) -> int:
        row = self._row
        first_id = row.first_id
        if retain.max_count is not None:
            first_id = max(first_id, row.last_id - retain.max_count + 1)
        if retain.max_bytes is None and retain.max_age_seconds is None:
            return first_id
        # Mostly the oldest batch may stay, and with it all that follow.
        limit = 1
        while True:
            front = self._transaction.execute(_front, {"log": row.id, "first": first_id, "limit": limit})
            for last_id, size, end_byte, appended_ms in front:
                age_ms, bytes_since = row.now_ms - appended_ms, row.bytes_appended - end_byte + size
                if not retain.forgets(age_ms=age_ms, bytes_since=bytes_since, is_newest=last_id == row.last_id):
                    return first_id
                first_id = last_id + 1
            if len(front) < limit:
                return first_id
            limit = FRONT_BATCHES_AT_ONCE

    def _forget_before(self, first_id: int) -> None:
        row = self._row
        if first_id <= row.first_id:
            return
        has_claims = row.head > row.first_id
        row.first_id = first_id
        row.head = max(row.head, first_id)
        self._delete_batches(0, first_id - 1)
        if has_claims:
            self._holds.forget_before(first_id)
            # What is left of the batch that was cut may all be done by now.
            self._delete_finished(first_id, first_id)

    def _announce(self, batch: StoredBatch) -> None:
        """Wake the watchers after the commit, and tell them of the batch if it is the only one."""
        note(self._transaction.grown, self._row.name, News(self._row.epoch, batch))

    def _save(self, *columns: str) -> None:
        values = {f"new_{column}": getattr(self._row, column) for column in columns}
        self._transaction.execute(_update_log(*columns), {"log": self._row.id, **values})


class _Basket:
    """Fills with ids and the batches that cover them, until a request is satisfied."""

    def __init__(self, log: SqlLog, request: ClaimRequest) -> None:
        self._log = log
        self._room_bytes = request.max_bytes
        self.room = request.limit
        self.taken: list[Hold] = []
        self.found: list[StoredBatch] = []

    @property
    def has_room(self) -> bool:
        return self.room > 0

    def put(self, hold: Hold) -> Hold | None:
        """Take as much of `hold` as fits, and return what does not."""
        if not self.has_room:
            return hold
        wanted = min(hold.last, hold.first + self.room - 1)
        covered = min(self._cover(hold.first, wanted), wanted)
        if covered >= hold.first:
            self.taken.append(replace(hold, last=covered, fence=NO_FENCE, attempts=hold.attempts + 1))
            self.room -= covered - hold.first + 1
        return None if covered == hold.last else replace(hold, first=covered + 1)

    def _cover(self, first: int, last: int) -> int:
        """Fetch the batches of ``first..last`` that are missing here and fit; return the last id covered."""
        covered = self.found[-1].last_id if self.found else first - 1
        if covered < last:
            start = max(first, covered + 1)
            sure = NEVER if self.found else start
            for batch in self._log.batches_covering(start, last, self._room_bytes, sure):
                self._room_bytes -= len(batch.blob)
                self.found.append(batch)
                covered = batch.last_id
        return covered


def find(transaction: Transaction, name: str, *, lock: bool) -> SqlLog | None:
    """Return a log, locked for this transaction if asked; an expired log is absent."""
    lookups = transaction.lookups
    found = transaction.execute(lookups.lock_log if lock else lookups.find_log, {"log_name": name})
    if not found:
        return None
    row = LogRow(name, *found[0])
    if 0 < row.expires_ms <= row.now_ms:
        if lock:
            SqlLog(transaction, row).drop()
        return None
    return SqlLog(transaction, row)


def find_or_create(transaction: Transaction, name: str, *, new_epoch: str | None = None, new_ttl_ms: int = 0) -> SqlLog:
    """Return a log, locked for this transaction."""
    while (log := find(transaction, name, lock=True)) is None:
        new = _NEW_LOG | {"name": name, "epoch": new_epoch or secrets.token_hex(8), "ttl_ms": new_ttl_ms}
        transaction.execute(insert_if_absent(transaction.dialect_name, logs), new)
    return log


def create_staging(
    transaction: Transaction, name: str, ttl_ms: int, beside: SqlLog | None, id_beside: Callable[[int], int | None]
) -> None:
    """Create a staging log whose batches will go to another log, so that moving them there changes as little as can be.

    It counts ids and bytes from where that log is, and has an id like that one, if the database gains from that.
    """
    new = _NEW_LOG | {"name": name, "epoch": secrets.token_hex(8), "ttl_ms": ttl_ms}
    if beside is not None:
        new |= beside.position
    ids = [] if beside is None else [id_beside(beside.id) for _ in range(IDS_TRIED)]
    while (found := find(transaction, name, lock=True)) is None:
        new_id = ids.pop() if ids else None
        statement = insert_if_absent(transaction.dialect_name, logs, with_id=new_id is not None)
        transaction.execute(statement, new if new_id is None else new | {"id": new_id})
    found.touch(None)


def touch_or_create(transaction: Transaction, name: str, new_ttl_ms: int) -> bool:
    """Start the time to live of a log anew, or create it with one, and return whether the log existed."""
    # Somebody else may create it first, so whose log it is shows in its epoch only.
    new_epoch = secrets.token_hex(8)
    log = find_or_create(transaction, name, new_epoch=new_epoch, new_ttl_ms=new_ttl_ms)
    log.touch(None)
    return log.epoch != new_epoch


def list_names(transaction: Transaction, prefix: str) -> list[str]:
    rows = transaction.execute(transaction.lookups.list_logs, {"lowest": prefix, "highest": prefix + "\U0010ffff"})
    return [name for name in (text_of(row[0]) for row in rows) if name.startswith(prefix)]


def holds_place(transaction: Transaction, place: str) -> bool:
    names = {"place": place, "anchor": anchor_of(place)}
    return any(transaction.execute(statement, names) for statement in transaction.lookups.find_place)


def drop_expired(transaction: Transaction, at_most: int) -> int:
    """Drop logs whose time to live has run out and return how many were found."""
    rows = transaction.execute(transaction.lookups.expired_logs, {"at_most": at_most})
    for name in sorted(text_of(name) for (name,) in rows):
        find(transaction, name, lock=True)
    return len(rows)


def _stored(row: tuple[Any, ...]) -> StoredBatch:
    last_id, count, blob, appended_ms, twin_log, twin_first_id = row
    twin = None if twin_log is None else Twin(text_of(twin_log), twin_first_id)
    return StoredBatch(last_id, count, blob, appended_ms, twin)


def _joined(done: Iterable[Hold]) -> list[tuple[int, int]]:
    """Return the ranges of `done` with neighbours made one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted((hold.first, hold.last) for hold in done):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _runs_without(bounds: Sequence[tuple[int, int]], open_holds: Sequence[Hold]) -> Iterator[tuple[int, int]]:
    """Yield runs of batches, as first and last id, of which no id is held."""
    remaining = iter(open_holds)
    hold = next(remaining, None)
    run: tuple[int, int] | None = None
    for first, last in bounds:
        while hold is not None and hold.last < first:
            hold = next(remaining, None)
        if hold is not None and hold.first <= last:
            if run is not None:
                yield run
            run = None
        else:
            run = (first if run is None else run[0], last)
    if run is not None:
        yield run
