"""The store contract: what a log needs of the thing that keeps it.

A store keeps **logs** (ordered messages with dense ids), **records** (small maps with a version) and
carries **signals** (payloads for whoever listens now). This page is the whole contract: a new store
subclasses `Store`, implements the methods that start with an underscore, and passes `tests/contract`.

Logs
    A log comes into being with its first append or `touch(create=True)`, and ends with `drop` or when its
    time to live runs out. Its ids start at 1, are dense, and never go back while it lives. Each life
    of a log has its own ``epoch``, a random text, so that a reader can tell a new log with an old
    name from the log it knew. Of those who create a log at the same time exactly one does so, and
    its time to live counts; the others find a log that exists.

    Messages are appended as record batches (`onebus.log.batch`) and kept as such: the last id of a batch
    is its address. The store never looks into a batch beyond its header.

Atomicity
    Every call takes effect as a whole or not at all, also when the process is killed in the middle.
    `append` with ``mirror`` writes both logs or neither. `claim` with ``settle`` does both or neither.

Capacity
    `append` with ``capacity`` is refused if afterwards more messages than that would be unfinished: claimable or
    held, as `stat` counts them, which is all that was neither settled nor trimmed. The count and the append are one
    step, so any number of producers that name the same capacity keep it together. The log does not remember
    it, and an append that names none is not counted first.

Marks
    `append` with ``mark`` says which append of which source it is, and the log remembers that, in the same step. An
    append whose number is not greater than the newest of its source changes nothing and raises `AlreadyAppended`,
    before its capacity is looked at. So an append whose outcome is not known may be sent again, by whoever sends it,
    and a sender that was replaced comes too late. Sources do not know of each other. Marks are the log's own, and not
    those of its mirror: they survive `trim` and `clear`, and end with the log, or with `unmark`. An append without a
    mark pays nothing for this.

Staging
    `stage` creates a log in which batches for other logs of the same place are gathered, where nobody looks for them.
    `transfer` takes some of them out of it and adds them to one of those logs, in one step and with a mark if there
    is one, as if they had been appended just now. Their bytes are moved and not written again, where the store can do
    that. Only who has staged a log appends to it, and no append brings it back when it is gone. Nobody claims from it,
    trims it, or reads it once something was taken out. It ends like any other.

Order
    Appends to one log are totally ordered by their ids, and a reader never sees an id before all
    smaller ones are visible. Two appends of one caller, one after the other, have ascending ids.

Durability
    When `append` returns, the batch is as safe as the store's own promise: on disk for SQLite, PostgreSQL
    and MySQL with their default settings, what ``appendfsync`` says for Redis. `inspect` tells. An append that is not
    ``durable`` survives the end of any process, and is on disk once a later call to the same place is: after a crash of
    the machine, either that call and all such appends before it are there, or neither it nor anything after it.
    Leases, settles, releases and extensions survive the end of any process. A crash of the machine may undo the last
    of them, and then their messages are delivered again; never with claims that deliver at most once.

Cancellation
    A cancelled call may or may not have taken effect. It leaves the store usable.

Time
    Leases, delays and times to live are measured by one clock per store: the server's where there is a
    server, so that the clocks of its clients do not matter.

Failure
    While the store is away, calls wait for it, up to the deadline of the store's options, and
    then raise `StoreUnavailable`. A call that only reads, or that may be repeated without harm, such as an append
    with a mark, is repeated when the connection breaks under it. Every other call raises `StoreUnavailable` at once: it
    may or may not have taken effect. Nothing is buffered in between.

Waking up
    `watch` tells that a log may have something new to read or to claim. It is a hint: it may come
    without need, and is allowed to get lost, so a reader also looks by itself from time to time. A store may
    send a small batch along with the hint (`onebus.stores.news`), which saves the reader a round trip.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self, TypeVar

from msgspec import Struct

from onebus.errors import (
    AlreadyAppended,
    BusError,
    InvalidArgument,
    LeaseLost,
    PayloadTooLarge,
    StagingLost,
    StoreClosed,
    StoreUnavailable,
)
from onebus.log.batch import count_of
from onebus.log.claims import Hold, Lease
from onebus.log.mark import Mark
from onebus.log.names import check_name, is_staging, place_of, staging_name, staging_prefix
from onebus.log.retention import KEEP_ALL, Retention
from onebus.log.stored import StoredBatch
from onebus.stores.deadlines import Deadlines
from onebus.stores.health import Health
from onebus.stores.switchboard import Subscription, Switchboard, Watch

T = TypeVar("T")

Clock = Callable[[], int]
"""Returns milliseconds since 1970."""

FOREVER: Final = 0.0
"""The time to live of a log or record that never expires by itself."""

MEBIBYTE: Final = 1024 * 1024

Lost = Sequence[tuple[int, int]]
"""Ranges of ids that a lease was thought to hold."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings that every store has."""

    deadline_seconds: float = 10.0
    """How long a call may take, waiting for an absent store included."""
    max_batch_bytes: int = 8 * MEBIBYTE
    """The largest batch that `append` accepts."""
    clock: Clock | None = None
    """Replaces the store's own clock; for tests."""


class Slice(Struct, frozen=True):
    """What `read` found. Ids at or before ``after`` in the first batch are the reader's to skip."""

    batches: Sequence[StoredBatch]
    first_id: int
    """The oldest id that the log still keeps; ``last_id + 1`` when it is empty."""
    last_id: int
    """The newest id of the log; 0 when there is none."""
    epoch: str
    """The life of the log that was read; empty when there is no such log."""


class Claim(Struct, frozen=True):
    """What `claim` took: ranges of ids, and the batches that cover them."""

    leases: Sequence[Lease]
    batches: Sequence[StoredBatch]
    lost: Lost = ()
    """The ranges given as ``settle`` that were not held any more."""
    retry_after_seconds: float | None = None
    """When this claim took less than its limit: how long until a lease or delay ends, if any does."""

    @property
    def count(self) -> int:
        return sum(lease.count for lease in self.leases)


@dataclass(frozen=True, slots=True)
class LogStat:
    """The state of a log at one moment."""

    epoch: str
    first_id: int
    """The oldest id that is kept and not yet trimmed away."""
    last_id: int
    head: int
    """The first id that nobody has ever claimed."""
    claimable: int
    """Messages that a claim could take now."""
    held: int
    """Messages that are leased, or wait out a delay."""
    bytes: int
    """Size of all batches from the oldest one kept to the newest."""
    ttl_seconds: float
    """Time to live without a touch; `FOREVER` when it does not expire."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of ids that are neither settled nor trimmed."""

    first: int
    last: int
    is_held: bool
    """Whether they are leased or wait out a delay; otherwise a claim could take them now."""


@dataclass(frozen=True, slots=True)
class Record:
    """A small map with a version that grows with every change."""

    version: int
    fields: Mapping[str, bytes]


class Verdict(Enum):
    GOOD = "good"
    INFO = "info"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `inspect` found, in plain words."""

    topic: str
    text: str
    verdict: Verdict = Verdict.INFO
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a store is, and how safe it keeps things."""

    product: str
    version: str
    findings: Sequence[Finding]


class Store(ABC):
    """Keeps logs and records, and carries signals; see the head of this page for what it promises.

    The public methods check their arguments, keep the deadline and wait for an absent store. Stores
    implement the underscored ones, which may rely on good arguments.
    """

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        self.url = url
        """Where the store is, without its password."""
        self.options = options or StoreOptions()
        self.hands_over = False
        """Whether messages are claimed for those who wait for them, as they are appended."""
        self.switchboard = Switchboard()
        self.health = Health(self._probe, self.options.deadline_seconds)
        self._deadlines = Deadlines(self.options.deadline_seconds)
        self._is_open = False

    # Life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and create or migrate what the store needs. Opening an open store does nothing.

        Raises:
            StoreUnavailable: the server does not answer.
            AccessDenied: the server refuses the user or the password.
            MissingDriver: a library is not installed.
            SchemaTooNew: the database belongs to a newer onebus.
        """
        if self._is_open:
            return
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                await self._open()
        except BaseException as error:
            await self._close()
            if isinstance(error, TimeoutError):
                raise self._timed_out() from error
            raise
        self._is_open = True
        self.health.start()

    async def close(self) -> None:
        """Give back every connection and thread. Closing twice does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self._deadlines.stop()
        self.switchboard.close()
        await self.health.stop()
        await self._close()

    # Logs

    async def append(
        self,
        log: str,
        batch: bytes,
        *,
        mirror: str | None = None,
        retain: Retention = KEEP_ALL,
        mirror_retain: Retention = KEEP_ALL,
        capacity: int | None = None,
        mark: Mark | None = None,
        durable: bool = True,
    ) -> int:
        """Add a batch to the end of a log and return the id of its first message.

        With ``mirror`` the same batch is also added to a second log, which must have the same place
        (`onebus.log.names.place_of`), and each of the two says where it is in the other. ``retain`` trims in the same
        step. The log's time to live starts anew.

        ``capacity`` is how many unfinished messages the log, and not its mirror, may have afterwards. What ``retain``
        trims in this step makes room. A batch that does not fit is refused as a whole.

        With ``mark`` the append happens once, however often it is sent. If it is not ``durable``, it does not wait for
        the disk.

        Raises:
            AlreadyAppended: the log has had this append of the mark's source, or a later one; nothing was changed.
            LogFull: the batch would exceed the capacity; nothing was changed.
            StagingLost: the log is a staging log, and gone.
            PayloadTooLarge, StoreFull, StoreUnavailable
        """
        check_name(log)
        if capacity is not None:
            _check_positive(capacity=capacity)
        if mirror is not None:
            _check_neighbour(mirror, log, "mirror")
        if len(batch) > self.options.max_batch_bytes:
            raise PayloadTooLarge(
                f"A batch of {len(batch)} bytes exceeds max_batch_bytes={self.options.max_batch_bytes}; "
                "append fewer messages at once, or raise the limit."
            )
        return await self._send(
            log, AppendRequest(batch, count_of(batch), mirror, retain, mirror_retain, capacity, mark, durable)
        )

    async def stage(self, log: str, *, ttl_seconds: float) -> str:
        """Create a log in which batches for `log`, or others of its place, are gathered, and return its name."""
        check_name(log)
        staging = check_name(staging_name(log, secrets.token_hex(8)))
        ttl_ms = _ttl_milliseconds(ttl_seconds)
        await self._call(lambda: self._stage(staging, log, ttl_ms), repeatable=True)
        return staging

    async def transfer(
        self,
        staging: str,
        log: str,
        batches: Sequence[int],
        *,
        mirror: str | None = None,
        retain: Retention = KEEP_ALL,
        mirror_retain: Retention = KEEP_ALL,
        mark: Mark | None = None,
    ) -> int:
        """Take batches out of a staging log, add them to the end of a log, and return the id of their first message.

        The batches are named by their last ids in the staging log, in the order in which they are wanted. All else is
        as with `append`.

        Raises:
            AlreadyAppended: the log has had this append of the mark's source, or a later one; nothing was changed.
            StagingLost: one of the batches is not there; nothing was changed.
            StoreFull, StoreUnavailable
        """
        check_name(log)
        _check_neighbour(staging, log, "hold batches for")
        if not batches:
            raise InvalidArgument("A transfer without batches would change nothing; name at least one.")
        if len(set(batches)) < len(batches):
            raise InvalidArgument("A batch can be transferred once, and one of these is named twice.")
        if mirror is not None:
            _check_neighbour(mirror, log, "mirror")
        request = TransferRequest(tuple(batches), mirror, retain, mirror_retain, mark)
        return await self._once(mark, lambda: self._transfer(staging, log, request))

    async def unmark(self, log: str, source: str) -> None:
        """Forget the mark of a source that will never append to a log again."""
        check_name(log)
        check_name(source)
        await self._call(lambda: self._unmark(log, source), repeatable=True)

    async def read(self, log: str, *, after: int, limit: int = 10_000, max_bytes: int = 4 * MEBIBYTE) -> Slice:
        """Return the batches that follow id `after`, oldest first: at least one, if there is one.

        Stops before the batch that would exceed ``limit`` messages or ``max_bytes``.
        """
        check_name(log)
        _check_positive(limit=limit, max_bytes=max_bytes)
        return await self._call(lambda: self._read(log, max(after, 0), limit, max_bytes), repeatable=True)

    async def claim(
        self,
        log: str,
        *,
        limit: int,
        lease_seconds: float | None = None,
        redeliver: bool = True,
        owner: str = "",
        max_bytes: int = 4 * MEBIBYTE,
        settle: Sequence[Lease] = (),
        waiter: Watch | None = None,
    ) -> Claim:
        """Take up to `limit` messages that nobody holds: freed ones first, then new ones, by id.

        Without ``lease_seconds`` they are done at once. With it they are held until they are settled or released,
        or until the lease ends; then they are claimable again, or, with ``redeliver=False``, done.
        At least one message is taken if there is one, even if its batch exceeds ``max_bytes``.

        ``settle`` first settles earlier leases, in the same step; those that were lost are named in the claim.

        With ``waiter``, a store that finds nothing may claim the next messages for this watch as they are appended, and
        hand them over with the wake-up (`Watch.take_claimed`). The watch then has to be given to `stop_waiting`.
        """
        check_name(log)
        _check_positive(limit=limit, max_bytes=max_bytes)
        if lease_seconds is not None:
            _check_positive(lease_seconds=lease_seconds)
        lease_ms = None if lease_seconds is None else _milliseconds(lease_seconds)
        request = ClaimRequest(limit, lease_ms, redeliver, owner, max_bytes, tuple(settle), waiter)
        return await self._call(lambda: self._claim(log, request))

    async def stop_waiting(self, log: str, waiter: Watch, *, owner: str) -> Sequence[Lease]:
        """Claim nothing more for a watch, and return what its `owner` holds, known to it or not."""
        check_name(log)
        return await self._call(lambda: self._stop_waiting(log, waiter, owner), repeatable=True)

    async def settle(self, log: str, leases: Sequence[Lease]) -> None:
        """Declare messages done. A batch of which every message is done is deleted.

        A lease with the fence `onebus.log.claims.ANY_FENCE` stands for whoever holds its ids now, here and wherever
        else leases are given; what has been released, or whose lease has ended, is not held.

        Raises:
            LeaseLost: some are not held any more; the others are settled all the same.
        """
        await self._change(log, leases, lambda: self._settle(log, leases))

    async def release(
        self, log: str, leases: Sequence[Lease], *, delay_seconds: float = 0.0, attempted: bool = True
    ) -> None:
        """Give messages back, to be claimed before newer ones, after ``delay_seconds``.

        With ``attempted=False`` the claim does not count as an attempt: the messages were never handed over.

        Raises:
            LeaseLost: some are not held any more; the others are released all the same.
        """
        if delay_seconds < 0:
            raise InvalidArgument(f"delay_seconds must not be negative, but is {delay_seconds}.")
        delay_ms = _milliseconds(delay_seconds) if delay_seconds else 0
        await self._change(log, leases, lambda: self._release(log, leases, delay_ms, attempted))

    async def extend(self, log: str, leases: Sequence[Lease], *, lease_seconds: float) -> None:
        """Hold messages for ``lease_seconds`` from now.

        Raises:
            LeaseLost: some are not held any more; the others are extended all the same.
        """
        _check_positive(lease_seconds=lease_seconds)
        lease_ms = _milliseconds(lease_seconds)
        await self._change(log, leases, lambda: self._extend(log, leases, lease_ms), repeatable=True)

    async def trim(self, log: str, retain: Retention) -> int:
        """Forget what exceeds the limits and return the oldest id that remains.

        Messages that are trimmed away are gone for claims too, whoever holds them.
        """
        check_name(log)
        return await self._call(lambda: self._trim(log, retain), repeatable=True)

    async def forget(self, log: str, *, before: int, epoch: str) -> int:
        """Forget the messages before an id, in one life of a log, and return the oldest id that remains.

        A log that does not exist, or lives another life, stays as it is. So whoever knows that messages are safe
        elsewhere can let exactly those go, whatever is appended meanwhile.
        """
        check_name(log)
        _check_positive(before=before)
        return await self._call(lambda: self._forget_before(log, before, epoch), repeatable=True)

    async def stat(self, log: str) -> LogStat | None:
        """Return the state of a log, or None if there is no such log."""
        check_name(log)
        return await self._call(lambda: self._stat(log), repeatable=True)

    async def unfinished(self, log: str) -> list[Span]:
        """Return which messages are neither settled nor trimmed, by id; none if there is no such log.

        `read` returns whole batches, finished messages included: this tells them apart.
        """
        check_name(log)
        return await self._call(lambda: self._unfinished(log), repeatable=True)

    async def touch(self, log: str, *, ttl_seconds: float | None = None, create: bool = False) -> bool:
        """Start a log's time to live anew and return whether the log existed.

        ``ttl_seconds`` changes the time to live, `FOREVER` removes it, None leaves it. With ``create`` an absent
        log is created, empty, and ``ttl_seconds`` is for that one only: a log that exists keeps its own.
        """
        check_name(log)
        ttl_ms = _ttl_milliseconds(ttl_seconds)
        return await self._call(lambda: self._touch(log, ttl_ms, create))

    async def clear(self, log: str) -> None:
        """Forget all messages and claims of a log. Its ids go on where they were."""
        check_name(log)
        await self._call(lambda: self._clear(log), repeatable=True)

    async def drop(self, log: str) -> bool:
        """End a log and return whether it existed. A log created later under its name has another epoch."""
        check_name(log)
        return await self._call(lambda: self._drop(log))

    async def list_logs(self, prefix: str = "") -> list[str]:
        """Return the names of all logs that start with `prefix`, sorted. Staging logs are not among them."""
        names = await self._call(lambda: self._list_logs(prefix), repeatable=True)
        return sorted(name for name in names if not is_staging(name))

    async def list_staging(self, place: str) -> list[str]:
        """Return the names of all staging logs of a place, sorted."""
        check_name(place)
        names = await self._call(lambda: self._list_logs(staging_prefix(place)), repeatable=True)
        return sorted(names)

    async def holds(self, place: str) -> bool:
        """Return whether a place lives here: a log or record of that name, or its anchor (`names.anchor_of`)."""
        check_name(place)
        return await self._call(lambda: self._holds(place), repeatable=True)

    # Records

    async def get(self, name: str) -> Record | None:
        """Return a record, or None if there is none."""
        check_name(name)
        return await self._call(lambda: self._get(name), repeatable=True)

    async def put(
        self,
        name: str,
        fields: Mapping[str, bytes | None],
        *,
        expected: int | None = None,
        ttl_seconds: float | None = None,
    ) -> int:
        """Set fields of a record and return its new version. Other fields stay; a field set to None goes.

        With ``expected`` the record must have that version; 0 means that it must not exist. ``ttl_seconds``
        works as in `touch` without ``create``, and every put starts the time to live anew.

        Raises:
            VersionConflict: the record does not have the expected version.
        """
        check_name(name)
        if not fields:
            raise InvalidArgument("A put without fields would change nothing; give at least one.")
        for field in fields:
            check_name(field)
        ttl_ms = _ttl_milliseconds(ttl_seconds)
        return await self._call(lambda: self._put(name, fields, expected, ttl_ms))

    async def delete(self, name: str, *, expected: int | None = None) -> bool:
        """Remove a record and return whether it existed.

        Raises:
            VersionConflict: ``expected`` is given and the record has another version, or does not exist.
        """
        check_name(name)
        return await self._call(lambda: self._delete(name, expected))

    # Signals

    async def signal(self, name: str, payload: bytes) -> int:
        """Hand a payload to everyone who listens to `name` now, and return how many open stores that is.

        Delivery: at most once. Order: as signalled by one caller, one after the other.
        """
        check_name(name)
        return await self._call(lambda: self._signal(name, payload))

    @asynccontextmanager
    async def listen(self, name: str) -> AsyncIterator[Subscription]:
        """Listen to a signal. What is signalled after this is entered arrives."""
        check_name(name)
        with self.switchboard.subscribe(name) as subscription:
            try:
                await self._call(lambda: self._start_listening(name), repeatable=True)
                yield subscription
            finally:
                if self.switchboard.is_last_subscription(subscription):
                    await self._stop(lambda: self._stop_listening(name))

    @asynccontextmanager
    async def watch(self, log: str) -> AsyncIterator[Watch]:
        """Be woken when a log may have something new to read or to claim."""
        check_name(log)
        with self.switchboard.watch(log) as watch:
            try:
                await self._call(lambda: self._start_watching(log), repeatable=True)
                yield watch
            finally:
                if self.switchboard.is_last_watch(watch):
                    await self._stop(lambda: self._stop_watching(log))

    async def inspect(self) -> Inspection:
        """Say what the store is and how safe it keeps things."""
        return await self._call(self._inspect, repeatable=True)

    # What a store implements

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None:
        """Give everything back; also called when `_open` failed half-way."""

    @abstractmethod
    async def _probe(self) -> None:
        """Ask the server for a sign of life; raise `StoreUnavailable` if there is none."""

    @abstractmethod
    async def _append(self, log: str, request: "AppendRequest") -> int: ...

    async def _stage(self, staging: str, log: str, ttl_ms: int | None) -> None:
        """Create a staging log for batches of `log` and its neighbours; it may exist if the call is repeated."""
        await self._touch(staging, ttl_ms, create=True)

    @abstractmethod
    async def _transfer(self, staging: str, log: str, request: "TransferRequest") -> int: ...

    @abstractmethod
    async def _unmark(self, log: str, source: str) -> None: ...

    @abstractmethod
    async def _read(self, log: str, after: int, limit: int, max_bytes: int) -> Slice: ...

    @abstractmethod
    async def _claim(self, log: str, request: "ClaimRequest") -> Claim: ...

    @abstractmethod
    async def _settle(self, log: str, leases: Sequence[Lease]) -> Lost: ...

    @abstractmethod
    async def _release(self, log: str, leases: Sequence[Lease], delay_ms: int, attempted: bool) -> Lost: ...

    @abstractmethod
    async def _extend(self, log: str, leases: Sequence[Lease], lease_ms: int) -> Lost: ...

    @abstractmethod
    async def _trim(self, log: str, retain: Retention) -> int: ...

    @abstractmethod
    async def _forget_before(self, log: str, before: int, epoch: str) -> int: ...

    @abstractmethod
    async def _stat(self, log: str) -> LogStat | None: ...

    @abstractmethod
    async def _unfinished(self, log: str) -> list[Span]: ...

    @abstractmethod
    async def _touch(self, log: str, ttl_ms: int | None, create: bool) -> bool: ...

    @abstractmethod
    async def _clear(self, log: str) -> None: ...

    @abstractmethod
    async def _drop(self, log: str) -> bool: ...

    @abstractmethod
    async def _list_logs(self, prefix: str) -> list[str]: ...

    @abstractmethod
    async def _holds(self, place: str) -> bool: ...

    @abstractmethod
    async def _get(self, name: str) -> Record | None: ...

    @abstractmethod
    async def _put(
        self, name: str, fields: Mapping[str, bytes | None], expected: int | None, ttl_ms: int | None
    ) -> int: ...

    @abstractmethod
    async def _delete(self, name: str, expected: int | None) -> bool: ...

    @abstractmethod
    async def _signal(self, name: str, payload: bytes) -> int: ...

    # A store whose switchboard is told everything anyway has nothing to do in these four.

    async def _start_listening(self, name: str) -> None:
        """Return once signals of `name` reach the switchboard; may be called again while they do."""

    async def _stop_listening(self, name: str) -> None: ...

    async def _start_watching(self, log: str) -> None:
        """Return once growth of `log` reaches the switchboard; may be called again while it does."""

    async def _stop_watching(self, log: str) -> None: ...

    async def _stop_waiting(self, log: str, waiter: Watch, owner: str) -> Sequence[Lease]:
        """Only for stores that hand messages over."""
        return ()

    @abstractmethod
    async def _inspect(self) -> Inspection: ...

    # What stores share

    async def _call(self, operation: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        try:
            with self._deadlines.one():
                while True:
                    # Also the one that is closed under a call that would be repeated: it will not come back.
                    if not self._is_open:
                        raise StoreClosed(
                            f"The store {self.url} is not open; open it first, or use it in `async with`."
                        )
                    if not self.health.is_online:
                        await self.health.wait_online()
                    try:
                        return await operation()
                    except StoreUnavailable as error:
                        self.health.went_offline(error)
                        if error.was_sent and not repeatable:
                            raise
        except TimeoutError as error:
            unavailable = self._timed_out()
            self.health.went_offline(unavailable)
            raise unavailable from error

    async def _send(self, log: str, request: "AppendRequest") -> int:
        return await self._once(request.mark, lambda: self._append(log, request))

    async def _once(self, mark: Mark | None, operation: Callable[[], Awaitable[int]]) -> int:
        """Append once; what has a mark is sent again when the connection breaks."""
        if mark is None:
            return await self._call(operation)
        was_sent = False

        async def append() -> int:
            nonlocal was_sent
            try:
                return await operation()
            except AlreadyAppended as error:
                if was_sent and error.number == mark.number:
                    return error.first_id
                raise
            finally:
                was_sent = True

        return await self._call(append, repeatable=True)

    async def _change(
        self,
        log: str,
        leases: Sequence[Lease],
        operation: Callable[[], Awaitable[Lost]],
        *,
        repeatable: bool = False,
    ) -> None:
        check_name(log)
        if not leases:
            return
        lost = await self._call(operation, repeatable=repeatable)
        if lost:
            raise LeaseLost(log, lost)

    async def _stop(self, operation: Callable[[], Awaitable[None]]) -> None:
        # Nobody is left to hear what fails here, and a store that is away has already stopped.
        try:
            if self._is_open and self.health.is_online:
                await self._call(operation)
        except BusError:
            return

    def _timed_out(self) -> StoreUnavailable:
        reason = f": {self.health.reason}" if self.health.reason else ""
        return StoreUnavailable(
            f"The store {self.url} did not answer within {self.options.deadline_seconds} s{reason}. "
            "Check that it runs and can be reached."
        )


class AppendRequest(Struct, frozen=True):
    """The checked arguments of `Store.append`."""

    batch: bytes
    count: int
    mirror: str | None
    retain: Retention
    mirror_retain: Retention
    capacity: int | None
    mark: Mark | None = None
    durable: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether nothing is wanted but that the batch is added."""
        return self.mirror is None and self.retain is KEEP_ALL and self.capacity is None and self.mark is None


class TransferRequest(Struct, frozen=True):
    """The checked arguments of `Store.transfer`."""

    batches: tuple[int, ...]
    mirror: str | None
    retain: Retention
    mirror_retain: Retention
    mark: Mark | None

    def of_batch(self, batch: StoredBatch) -> AppendRequest:
        """Return one of the batches as if it was appended for itself, without its mark."""
        return AppendRequest(batch.blob, batch.count, self.mirror, self.retain, self.mirror_retain, None)


class ClaimRequest(Struct, frozen=True):
    """The checked arguments of `Store.claim`."""

    limit: int
    lease_ms: int | None
    redeliver: bool
    owner: str
    max_bytes: int
    settle: tuple[Lease, ...]
    waiter: Watch | None = None


def spans_of(holds: Iterable[Hold], head: int, last_id: int, now_ms: int) -> list[Span]:
    """Return what is unfinished in a log with these holds, which must be sorted."""
    spans = [
        Span(hold.first, hold.last, hold.due_ms > now_ms) for hold in holds if hold.redeliver or hold.due_ms > now_ms
    ]
    return [*spans, Span(head, last_id, False)] if head <= last_id else spans


def fitting(batches: Iterable[StoredBatch], after: int, limit: int, max_bytes: int) -> list[StoredBatch]:
    """Return the first batch, and those that follow it while they fit, as `read` does."""
    found: list[StoredBatch] = []
    for batch in batches:
        count, size = batch.last_id - max(after, batch.first_id - 1), len(batch.blob)
        if found and (count > limit or size > max_bytes):
            break
        found.append(batch)
        limit, max_bytes = limit - count, max_bytes - size
    return found


def check_staged(staging: str, wanted: Iterable[int], there: Container[int]) -> None:
    """Check that all batches that are wanted of a staging log are there.

    Raises:
        StagingLost: they are not.
    """
    gone = sum(last_id not in there for last_id in wanted)
    if gone:
        raise staging_lost(staging, gone)


def staging_lost(staging: str, gone: int) -> StagingLost:
    """Return the error that says how many batches of a staging log are gone."""
    return StagingLost(f"Of what was staged in {staging!r}, {gone} batches are gone.")


def staging_gone(staging: str) -> StagingLost:
    """Return the error for whoever appends to a staging log that is not there, or not any more."""
    return StagingLost(f"The staging log {staging!r} is gone, with what was in it.")


def _check_neighbour(name: str, log: str, role: str) -> None:
    check_name(name)
    if name == log or place_of(name) != place_of(log):
        raise InvalidArgument(f"{name!r} cannot {role} {log!r}: it must be another log of the same place.")


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _ttl_milliseconds(ttl_seconds: float | None) -> int | None:
    if ttl_seconds is None or ttl_seconds == FOREVER:
        return None if ttl_seconds is None else 0
    _check_positive(ttl_seconds=ttl_seconds)
    return _milliseconds(ttl_seconds)


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise InvalidArgument(f"{name} must be greater than 0, but is {number}.")
