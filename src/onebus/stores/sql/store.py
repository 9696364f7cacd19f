"""Logs in a database: SQLite, PostgreSQL, MySQL or MariaDB, through SQLAlchemy Core."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import uuid4

from sqlalchemy import BigInteger, bindparam, make_url
from sqlalchemy.exc import ArgumentError

from onebus.errors import BusError, InvalidUrl, StoreClosed, StoreUnavailable
from onebus.log.batch import Entry, decode, encode
from onebus.log.claims import Lease, ranges_of
from onebus.log.mark import Mark
from onebus.log.names import is_staging
from onebus.log.retention import Retention
from onebus.log.stored import Twin
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
    staging_gone,
    staging_lost,
)
from onebus.stores.following import SAFETY_POLL_SECONDS
from onebus.stores.news import AnyNews
from onebus.stores.sql import logs, records
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.connection import Database
from onebus.stores.sql.dialects.base import Append, SqlDialect
from onebus.stores.sql.dialects.mysql import MysqlDialect
from onebus.stores.sql.dialects.postgresql import PostgresqlDialect
from onebus.stores.sql.dialects.sqlite import SqliteDialect
from onebus.stores.sql.migrations import migrate
from onebus.stores.sql.transaction import Lookups, Transaction
from onebus.stores.sql.workers import Workers, in_thread

_log = logging.getLogger(__name__)

T = TypeVar("T")

FEW_LEASES: Final = 16
"""To take or to give back so many, or so many messages, is little work."""

SIGNAL_PREFIX: Final = "onebus:signal:"
"""Signals travel through logs of their own, whose names nobody else can use."""
SIGNALS_KEPT: Final = Retention(max_count=10_000, max_age_seconds=60)
SIGNAL_LOG_TTL_MS: Final = 600_000

LISTENER_TTL_MS: Final = 60_000
HOUSEKEEPING_SECONDS: Final = 20.0
EXPIRED_LOGS_AT_ONCE: Final = 100

_DIALECTS: Mapping[str, type[SqlDialect]] = {
    "sqlite": SqliteDialect,
    "postgresql": PostgresqlDialect,
    "postgres": PostgresqlDialect,
    "mysql": MysqlDialect,
    "mariadb": MysqlDialect,
}


class SqlStore(Store):
    """Keeps logs in tables. Writers run in threads; each log's row orders those who write to it."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise InvalidUrl("The store URL cannot be read. Write scheme://user:password@host:port/database.") from None
        deadline_seconds = (options or StoreOptions()).deadline_seconds
        self._dialect = _DIALECTS[parsed.drivername.partition("+")[0]](parsed, deadline_seconds)
        super().__init__(self._dialect.display_url, options)
        self._client = uuid4().hex[:16]
        clock = self.options.clock
        now = self._dialect.server_clock if clock is None else bindparam("clock_ms", callable_=clock, type_=BigInteger)
        self._lookups = Lookups(now)
        self._append_at_once = self._dialect.append_at_once(now)
        self._link: _Link | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._signal_pumps: dict[str, asyncio.Task[None]] = {}
        self.health.on_change(self._health_changed)

    # Life

    async def _open(self) -> None:
        database = Database(self._dialect.create_engine())
        await in_thread(lambda: self._migrate(database))
        bell = self._dialect.create_bell(self._client)
        link = self._link = _Link(
            database,
            bell,
            writers=Workers(database, self._dialect, self._lookups, bell=bell, on_grown=self._heard),
            readers=Workers(database, self._dialect, self._lookups),
        )
        link.writers.start(self._dialect.writers, "writer")
        link.readers.start(self._dialect.readers, "reader")
        self._housekeeping = asyncio.create_task(self._keep_house(), name="onebus-housekeeping")

    def _migrate(self, database: Database) -> None:
        try:
            connection = database.connect()
            try:
                migrate(connection, self._dialect)
            finally:
                connection.close()
        except self._dialect.driver_errors as error:
            raise self._dialect.translate(error) from error

    async def _close(self) -> None:
        tasks = [*self._signal_pumps.values(), *filter(None, [self._housekeeping])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._signal_pumps.clear()
        self._housekeeping = None
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _probe(self) -> None:
        await self._read_with(lambda transaction: transaction.now_ms())
        async with self._linked.bell_lock:
            if self._linked.is_hearing:
                await self._open_bell()
        self.switchboard.wake_all()

    def _health_changed(self, online: bool) -> None:
        if self._link is not None and not online:
            self._link.writers.reconnect()
            self._link.readers.reconnect()

    async def sweep(self) -> None:
        """Remove what has expired. An open store does so by itself from time to time."""
        await self._write_with(records.drop_expired)
        while await self._write_with(lambda it: logs.drop_expired(it, EXPIRED_LOGS_AT_ONCE)):
            pass

    async def _keep_house(self) -> None:
        """Sweep, and stay known to others, while the store is open."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            try:
                await self.health.wait_online()
                await self.sweep()
                for name in self.switchboard.heard_signals:
                    await self._register(name)
                if self._linked.is_hearing:
                    await self._write_with(self._linked.bell.refresh)
            except StoreUnavailable as error:
                self.health.went_offline(error)
            except BusError:
                _log.exception("sweeping %s failed; it will be tried again", self.url)

    # Logs

    async def _append(self, log: str, request: AppendRequest) -> int:
        can_be_at_once = request.is_plain and request.durable
        if can_be_at_once and (first_id := await self._try_append_at_once(log, request.batch, request.count)):
            return first_id

        def append(transaction: Transaction) -> int:
            found = _find_to_append(transaction, log, request.mark)
            return _append_both(transaction, found, log, request)

        return await self._write_with(append, durable=request.durable)

    async def _try_append_at_once(self, log: str, batch: bytes, count: int) -> int | None:
        """Append in one round trip if the database can, and return None if it cannot, or if there is no such log."""
        append_at_once = self._append_at_once
        if append_at_once is None:
            return None
        append = Append(log, batch, count)
        last_id = await self._linked.writers.run_at_once(lambda transaction: append_at_once(transaction, append))
        return None if last_id is None else last_id - count + 1

    async def _stage(self, staging: str, log: str, ttl_ms: int | None) -> None:
        def stage(transaction: Transaction) -> None:
            beside = logs.find(transaction, log, lock=False)
            logs.create_staging(transaction, staging, ttl_ms or 0, beside, self._dialect.id_beside)

        await self._write_with(stage, durable=False)

    async def _transfer(self, staging: str, log: str, request: TransferRequest) -> int:
        def transfer(transaction: Transaction) -> int:
            found = _find_to_append(transaction, log, request.mark)
            staged = logs.find(transaction, staging, lock=True)
            if staged is None:
                raise staging_lost(staging, len(request.batches))
            if request.mirror is None:
                return found.take_over(staged, request.batches, request.retain)
            batches = staged.take_out(request.batches)
            first_id, *_ = [_append_both(transaction, found, log, request.of_batch(batch)) for batch in batches]
            return first_id

        return await self._write_with(transfer)

    async def _unmark(self, log: str, source: str) -> None:
        def unmark(transaction: Transaction) -> None:
            found = logs.find(transaction, log, lock=True)
            if found is not None:
                found.unmark(source)

        await self._write_with(unmark)

    async def _read(self, log: str, after: int, limit: int, max_bytes: int) -> Slice:
        def read(transaction: Transaction) -> Slice:
            found = logs.find(transaction, log, lock=False)
            return Slice((), 1, 0, "") if found is None else found.read(after, limit, max_bytes)

        return await self._read_with(read)

    async def _claim(self, log: str, request: ClaimRequest) -> Claim:
        def claim(transaction: Transaction) -> Claim:
            found = logs.find(transaction, log, lock=True)
            return Claim((), (), ranges_of(request.settle)) if found is None else found.claim(request)

        # A lease that is forgotten in a power cut delivers its messages again, as it promises. What is delivered at
        # most once must be remembered.
        durable = request.lease_ms is None or not request.redeliver
        is_small = request.limit <= FEW_LEASES and len(request.settle) <= FEW_LEASES
        return await self._write_with(claim, durable=durable, is_small=is_small)

    async def _settle(self, log: str, leases: Sequence[Lease]) -> Lost:
        return await self._change_leases(log, leases, lambda found: found.settle(leases))

    async def _release(self, log: str, leases: Sequence[Lease], delay_ms: int, attempted: bool) -> Lost:
        return await self._change_leases(log, leases, lambda found: found.release(leases, delay_ms, attempted))

    async def _extend(self, log: str, leases: Sequence[Lease], lease_ms: int) -> Lost:
        return await self._change_leases(log, leases, lambda found: found.extend(leases, lease_ms))

    async def _change_leases(self, log: str, leases: Sequence[Lease], change: Callable[[logs.SqlLog], Lost]) -> Lost:
        def run(transaction: Transaction) -> Lost:
            found = logs.find(transaction, log, lock=True)
            return ranges_of(leases) if found is None else change(found)

        return await self._write_with(run, durable=False, is_small=len(leases) <= FEW_LEASES)

    async def _trim(self, log: str, retain: Retention) -> int:
        def trim(transaction: Transaction) -> int:
            found = logs.find(transaction, log, lock=True)
            return 1 if found is None else found.trim(retain)

        return await self._write_with(trim)

    async def _forget_before(self, log: str, before: int, epoch: str) -> int:
        def forget(transaction: Transaction) -> int:
            found = logs.find(transaction, log, lock=True)
            return 1 if found is None else found.forget(before, epoch)

        return await self._write_with(forget)

    async def _stat(self, log: str) -> LogStat | None:
        def stat(transaction: Transaction) -> LogStat | None:
            found = logs.find(transaction, log, lock=False)
            return None if found is None else found.stat()

        return await self._read_with(stat)

    async def _unfinished(self, log: str) -> list[Span]:
        def unfinished(transaction: Transaction) -> list[Span]:
            found = logs.find(transaction, log, lock=False)
            return [] if found is None else found.unfinished()

        return await self._read_with(unfinished)

    async def _touch(self, log: str, ttl_ms: int | None, create: bool) -> bool:
        def touch(transaction: Transaction) -> bool:
            if create:
                return logs.touch_or_create(transaction, log, ttl_ms or 0)
            found = logs.find(transaction, log, lock=True)
            if found is not None:
                found.touch(ttl_ms)
            return found is not None

        return await self._write_with(touch)

    async def _clear(self, log: str) -> None:
        def clear(transaction: Transaction) -> None:
            found = logs.find(transaction, log, lock=True)
            if found is not None:
                found.clear()

        await self._write_with(clear)

    async def _drop(self, log: str) -> bool:
        def drop(transaction: Transaction) -> bool:
            found = logs.find(transaction, log, lock=True)
            if found is not None:
                found.drop()
            return found is not None

        return await self._write_with(drop)

    async def _list_logs(self, prefix: str) -> list[str]:
        names = await self._read_with(lambda transaction: logs.list_names(transaction, prefix))
        return [name for name in names if not name.startswith(SIGNAL_PREFIX)]

    async def _holds(self, place: str) -> bool:
        return await self._read_with(lambda transaction: logs.holds_place(transaction, place))

    # Records

    async def _get(self, name: str) -> Record | None:
        return await self._read_with(lambda transaction: records.get(transaction, name))

    async def _put(
        self, name: str, fields: Mapping[str, bytes | None], expected: int | None, ttl_ms: int | None
    ) -> int:
        return await self._write_with(lambda transaction: records.put(transaction, name, fields, expected, ttl_ms))

    async def _delete(self, name: str, expected: int | None) -> bool:
        return await self._write_with(lambda transaction: records.remove(transaction, name, expected))

    # Signals

    async def _signal(self, name: str, payload: bytes) -> int:
        blob = encode([Entry(payload)], now_ms=0)

        def signal(transaction: Transaction) -> int:
            receivers = records.count_listeners(transaction, name)
            if receivers:
                log = logs.find_or_create(transaction, SIGNAL_PREFIX + name)
                log.append(blob, 1, None, SIGNALS_KEPT)
                log.touch(SIGNAL_LOG_TTL_MS)
            return receivers

        return await self._write_with(signal)

    async def _start_listening(self, name: str) -> None:
        async with self._linked.listening_lock:
            if name in self._signal_pumps:
                return
            log = SIGNAL_PREFIX + name
            await self._start_watching(log)
            await self._register(name)
            heard = await self._read(log, 0, 1, 1)
            self._signal_pumps[name] = asyncio.create_task(self._pump(name, log, heard.last_id, heard.epoch))

    async def _stop_listening(self, name: str) -> None:
        async with self._linked.listening_lock:
            pump = self._signal_pumps.pop(name, None)
            if pump is not None:
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)
            await self._write_with(lambda transaction: records.remove_listener(transaction, name, self._client))

    async def _register(self, name: str) -> None:
        await self._write_with(lambda it: records.add_listener(it, name, self._client, LISTENER_TTL_MS))

    async def _pump(self, name: str, log: str, after: int, epoch: str) -> None:
        """Carry what arrives in the log of a signal to those who listen to it here."""
        with self.switchboard.watch(log) as watch:
            while True:
                try:
                    await self.health.wait_online()
                    found = await self._read(log, after, 10_000, 4 * 1024 * 1024)
                except StoreUnavailable as error:
                    self.health.went_offline(error)
                    continue
                if found.epoch != epoch:
                    after, epoch = 0, found.epoch
                    continue
                for batch in found.batches:
                    for offset, payload in enumerate(decode(batch.blob).payloads()):
                        if batch.first_id + offset > after:
                            self.switchboard.deliver(name, payload)
                    after = batch.last_id
                if not found.batches:
                    await watch.wait(SAFETY_POLL_SECONDS)

    async def _start_watching(self, log: str) -> None:
        async with self._linked.bell_lock:
            if not self._linked.is_hearing:
                await self._open_bell()

    async def _open_bell(self) -> None:
        await self._linked.bell.open(self._heard, self._bell_lost, self._write_with)
        self._linked.is_hearing = True

    def _heard(self, grown: Mapping[str, AnyNews | None] | None) -> None:
        if grown is None:
            self.switchboard.wake_all()
            return
        for log, news in grown.items():
            self.switchboard.wake(log, news)

    def _bell_lost(self, error: Exception) -> None:
        self.health.went_offline(self._dialect.unavailable(error))

    async def _inspect(self) -> Inspection:
        return await self._read_with(lambda transaction: self._dialect.inspect(transaction.connection))

    # Threads

    @property
    def _linked(self) -> "_Link":
        if self._link is None:
            raise StoreClosed(f"The store {self.url} was closed.")
        return self._link

    async def _read_with(self, function: Callable[[Transaction], T]) -> T:
        return await self._linked.readers.run(function)

    async def _write_with(
        self, function: Callable[[Transaction], T], *, durable: bool = True, is_small: bool = False
    ) -> T:
        return await self._linked.writers.run(function, durable=durable, is_small=is_small)


def _find_to_append(transaction: Transaction, log: str, mark: Mark | None) -> logs.SqlLog:
    """Return a log, locked, to which an append with this mark may go, and note the mark.

    Raises:
        StagingLost: it is a staging log that is gone; such a log is not created by an append.
    """
    found = logs.find(transaction, log, lock=True) if is_staging(log) else logs.find_or_create(transaction, log)
    if found is None:
        raise staging_gone(log)
    if mark is not None:
        found.check_mark(mark)
        found.put_mark(mark, found.next_id)
    return found


def _append_both(transaction: Transaction, found: logs.SqlLog, log: str, request: AppendRequest) -> int:
    """Append a batch to a log, and to its mirror if there is one."""
    batch, count, mirror = request.batch, request.count, request.mirror
    if mirror is None:
        return found.append(batch, count, None, request.retain, capacity=request.capacity)
    mirrored = logs.find_or_create(transaction, mirror)
    twin = Twin(mirror, mirrored.next_id)
    first_id = found.append(batch, count, twin, request.retain, capacity=request.capacity)
    mirrored.append(batch, count, Twin(log, first_id), request.mirror_retain)
    return first_id


@dataclass(slots=True)
class _Link:
    """What an open store has and a closed one has not."""

    database: Database
    bell: Bell
    writers: Workers
    readers: Workers
    is_hearing: bool = False
    listening_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever begins or ends to listen: who begins again at once must not be signed off by the end before."""
    bell_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever opens or closes the bell: two at once would each leave something open."""

    async def close(self) -> None:
        await self.writers.close()
        await self.readers.close()
        async with self.bell_lock:
            await self.bell.close()
        self.database.close()
