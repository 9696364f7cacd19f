"""Threads that run transactions, so that neither a disk nor a server ever stops the event loop.

A thread takes all that waits for it, up to a number that the dialect sets, and commits it together: first what need not
wait for the disk, then the rest. For SQLite that is group commit: one wait for the disk for many appends.

What waits neither for the disk nor for anybody else is done before a thread would have woken up. So where the dialect
can begin such a transaction at once, it is run where it was asked for, while no thread is busy and it is soon done.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

from onebus.errors import BusError, StoreClosed, StoreUnavailable
from onebus.stores.news import Grown, News, note
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.connection import Database, SqlConnection
from onebus.stores.sql.dialects.base import SqlDialect
from onebus.stores.sql.transaction import Lookups, Transaction

_log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_WAIT_SECONDS: Final = 30.0
"""How long a thread waits for a lock, and a closing store for its threads; callers have their own deadline."""

MAX_CONFLICTS: Final = 20
"""How often a transaction that lost against another one is run again."""

MOST_AT_ONCE: Final = 16
"""How many transactions run one after the other in the event loop: then a thread has its turn, and so have others."""

SLOW_SECONDS: Final = 0.005
"""Who takes longer than this in the event loop found a busy disk, or much to do. The next ones are left to threads."""

SLOW_PAUSE_SECONDS: Final = 1.0


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, which nobody has to wait for when the program ends."""
    loop = asyncio.get_running_loop()
    job = Job(lambda _: function(), loop.create_future())

    def run() -> None:
        try:
            job.result = function()
        except BaseException as error:
            job.error = error
        _in_loop(loop, job.finish)

    threading.Thread(target=run, name="onebus-once", daemon=True).start()
    return await job.done  # type: ignore[no-any-return]


class Job:
    """A transaction that somebody waits for."""

    def __init__(
        self,
        function: Callable[[Transaction], Any],
        done: asyncio.Future[Any],
        *,
        durable: bool = True,
        at_once: bool = False,
    ) -> None:
        self.function = function
        self.done = done
        self.durable = durable
        self.at_once = at_once
        self.result: Any = None
        self.error: BaseException | None = None

    def finish(self) -> None:
        """Hand the outcome to the caller; runs in the event loop."""
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.result)


class _Desk:
    """A connection, for one at a time to work with: mostly its thread, sometimes the event loop."""

    __slots__ = ("connection", "generation", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: SqlConnection | None = None
        self.generation = 0

    def leave(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Workers:
    """Some threads with a connection each, and the jobs that wait for them."""

    def __init__(
        self,
        database: Database,
        dialect: SqlDialect,
        lookups: Lookups,
        *,
        bell: Bell | None = None,
        on_grown: Callable[[Mapping[str, News | None]], None] | None = None,
    ) -> None:
        """Workers without a bell only read, and run their jobs without a transaction."""
        self._database = database
        self._dialect = dialect
        self._driver_errors = dialect.driver_errors
        self._lookups = lookups
        self._bell = bell
        self._on_grown = on_grown
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._desks: list[_Desk] = []
        self._generation = 0
        self._run_in_a_row = 0
        self._slow_until = 0.0
        self._closed = False

    def start(self, count: int, name: str) -> None:
        for number in range(count):
            desk = _Desk()
            thread = threading.Thread(target=self._work, args=(desk,), name=f"onebus-{name}-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)
            self._desks.append(desk)

    async def run(self, function: Callable[[Transaction], T], *, durable: bool = True, is_small: bool = False) -> T:
        """Run `function` in a transaction and return its result once that is committed.

        What is not ``durable`` survives the end of any process, but maybe not a power cut. If it is also small, it need
        not leave the event loop.
        """
        job = Job(function, self._loop.create_future(), durable=durable)
        if is_small and not durable and self._run_here(job):
            job.finish()
            return await job.done  # type: ignore[no-any-return]
        return await self._wait_for(job)  # type: ignore[no-any-return]

    async def run_at_once(self, function: Callable[[Transaction], T]) -> T:
        """Run a function that goes to the database once, and needs no transaction around that."""
        return await self._wait_for(Job(function, self._loop.create_future(), at_once=True))  # type: ignore[no-any-return]

    async def _wait_for(self, job: Job) -> Any:
        if self._closed:
            raise StoreClosed("The store was closed.")
        self._run_in_a_row = 0
        self._jobs.put(job)
        return await job.done

    def reconnect(self) -> None:
        """Let no thread use a connection that it has now."""
        self._generation += 1

    async def close(self) -> None:
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await in_thread(partial(thread.join, LONGEST_WAIT_SECONDS))
        self._threads.clear()

    def _run_here(self, job: Job) -> bool:
        """Run a job in the event loop if it can be done at once, and return whether it was."""
        if self._closed or self._run_in_a_row >= MOST_AT_ONCE or not self._jobs.empty():
            return False
        began, desk = perf_counter(), self._desks[0]
        if began < self._slow_until or not desk.lock.acquire(blocking=False):
            return False
        try:
            is_done = self._is_run_at_once(job, desk)
        finally:
            desk.lock.release()
        self._run_in_a_row += 1
        ended = perf_counter()
        if ended - began > SLOW_SECONDS:
            self._slow_until = ended + SLOW_PAUSE_SECONDS
        return is_done

    def _is_run_at_once(self, job: Job, desk: _Desk) -> bool:
        connection = desk.connection
        if self._bell is None or connection is None or desk.generation != self._generation:
            return False
        transaction = Transaction(connection, self._lookups)
        try:
            if not self._dialect.begin_at_once(connection):
                return False
            _run(job, transaction)
            if job.error is None:
                self._bell.prepare(transaction)
                self._dialect.commit(connection)
            else:
                self._dialect.rollback(connection)
        except Exception:
            # A thread has the time to try again, and to find out what is wrong.
            desk.connection = self._rollback(connection)
            return False
        except BaseException:
            # A signal, for example: nobody must find a transaction that was begun.
            desk.connection = self._rollback(connection)
            raise
        grown: Grown = {}
        if job.error is None:
            self._ring(transaction, grown)
        if grown and self._on_grown is not None:
            self._on_grown(grown)
        return True

    def _work(self, desk: _Desk) -> None:
        while (jobs := self._next_jobs()) is not None:
            for together in _by_patience(jobs):
                grown: Grown = {}
                with desk.lock:
                    if desk.generation != self._generation:
                        desk.leave()
                    desk.generation = self._generation
                    desk.connection = self._run_all(together, desk.connection, grown)
                self._tell(together, grown)
        with desk.lock:
            desk.leave()

    def _next_jobs(self) -> list[Job] | None:
        job = self._jobs.get()
        if job is None:
            return None
        jobs = [job]
        while len(jobs) < self._dialect.transactions_per_commit:
            try:
                another = self._jobs.get_nowait()
            except queue.Empty:
                break
            if another is None:
                self._jobs.put(None)
                break
            jobs.append(another)
        return jobs

    def _tell(self, jobs: Sequence[Job], grown: Grown) -> None:
        """Tell the callers first, so that the next append is on its way while readers take in the last one."""

        def tell() -> None:
            for job in jobs:
                job.finish()
            if grown and self._on_grown is not None:
                self._on_grown(grown)

        _in_loop(self._loop, tell)

    def _run_all(self, jobs: Sequence[Job], connection: SqlConnection | None, grown: Grown) -> SqlConnection | None:
        """Run jobs together; where that fails, each for itself, so that each has its own outcome."""
        connection = self._attempt(jobs, connection, grown)
        if len(jobs) > 1 and any(isinstance(job.error, self._driver_errors) for job in jobs):
            for job in jobs:
                connection = self._attempt([job], connection, grown)
        for job in jobs:
            if isinstance(job.error, self._driver_errors):
                job.error = self._dialect.translate(job.error)
            if isinstance(job.error, StoreUnavailable) and connection is not None:
                connection.close()
                connection = None
        return connection

    def _attempt(self, jobs: Sequence[Job], connection: SqlConnection | None, grown: Grown) -> SqlConnection | None:
        for _ in range(MAX_CONFLICTS):
            try:
                connection = connection or self._connect()
                self._run_together(jobs, connection, grown)
            except BusError as error:
                _set_error(jobs, error)
                break
            except self._driver_errors as error:
                _set_error(jobs, error)
                if connection is not None:
                    connection = self._rollback(connection)
                if not self._dialect.is_conflict(error):
                    break
            except Exception as error:
                _log.exception("a transaction failed in an unexpected way")
                _set_error(jobs, error)
                if connection is not None:
                    connection = self._rollback(connection)
                break
            else:
                break
        return connection

    def _connect(self) -> SqlConnection:
        try:
            return self._database.connect()
        except self._driver_errors as error:
            translated = self._dialect.translate(error)
            if isinstance(translated, StoreUnavailable):
                translated.was_sent = False
            raise translated from error

    def _run_together(self, jobs: Sequence[Job], connection: SqlConnection, grown: Grown) -> None:
        transaction = Transaction(connection, self._lookups)
        if self._bell is None:
            for job in jobs:
                _run(job, transaction)
            return
        if len(jobs) == 1 and jobs[0].at_once:
            self._dialect.run_at_once(connection, partial(_run_wanted, jobs[0], transaction), LONGEST_WAIT_SECONDS)
            self._ring(transaction, grown)
            return
        durable = any(job.durable for job in jobs)
        self._dialect.begin(connection, LONGEST_WAIT_SECONDS, durable=durable)
        for job in jobs:
            _run_wanted(job, transaction)
        if any(job.error is not None for job in jobs):
            self._dialect.rollback(connection)
            if len(jobs) == 1:
                return
            transaction = Transaction(connection, self._lookups)
            self._dialect.begin(connection, LONGEST_WAIT_SECONDS, durable=durable)
            for job in jobs:
                _run_guarded(job, transaction)
        self._bell.prepare(transaction)
        self._dialect.commit(connection)
        self._ring(transaction, grown)

    def _ring(self, transaction: Transaction, grown: Grown) -> None:
        """Wake readers elsewhere, and remember whom to wake here."""
        if self._bell is not None and transaction.grown:
            self._bell.ring(transaction)
            for log, news in transaction.grown.items():
                note(grown, log, news)

    def _rollback(self, connection: SqlConnection) -> SqlConnection | None:
        try:
            self._dialect.rollback(connection)
        except self._driver_errors:
            connection.close()
            return None
        return connection


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    # The loop is closed when a program ends without closing its store: nobody is left to be told.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


def _run_wanted(job: Job, transaction: Transaction) -> None:
    # A caller that has given up, for example because its deadline passed, must not be surprised later.
    if not job.done.cancelled():
        _run(job, transaction)


def _run_guarded(job: Job, transaction: Transaction) -> None:
    """Run a job such that its failure undoes nothing but itself."""
    grown = dict(transaction.grown)
    transaction.connection.command("SAVEPOINT job")
    _run_wanted(job, transaction)
    if job.error is not None:
        transaction.connection.command("ROLLBACK TO job")
        transaction.grown = grown
    transaction.connection.command("RELEASE job")


def _run(job: Job, transaction: Transaction) -> None:
    job.error = None
    try:
        job.result = job.function(transaction)
    except BusError as error:
        job.error = error


def _by_patience(jobs: Sequence[Job]) -> list[Sequence[Job]]:
    """Return those that do not wait for the disk, and then the others."""
    hasty, durable = [job for job in jobs if not job.durable], [job for job in jobs if job.durable]
    return [group for group in (hasty, durable) if group]


def _set_error(jobs: Sequence[Job], error: BaseException) -> None:
    for job in jobs:
        job.error = error
