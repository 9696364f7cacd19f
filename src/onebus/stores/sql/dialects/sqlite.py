"""SQLite: one file, one writer at a time, everything on disk when a commit returns."""

import random
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Engine,
    LargeBinary,
    String,
    bindparam,
    column,
    create_engine,
    event,
    insert,
    or_,
    select,
)
from sqlalchemy.pool import NullPool
from sqlalchemy.sql import ClauseElement

from onebus.errors import AccessDenied, BusError, InvalidUrl, StoreError, StoreFull, StoreUnavailable
from onebus.log.stored import StoredBatch
from onebus.stores.base import Finding, Inspection, Verdict
from onebus.stores.news import News, note
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.bells.unix import UnixBell
from onebus.stores.sql.connection import SqlConnection
from onebus.stores.sql.dialects.base import Append, AppendAtOnce, SqlDialect
from onebus.stores.sql.tables import batches, logs
from onebus.stores.sql.transaction import Transaction

BUSY_PAUSE_SECONDS: Final = 0.0002
CHECKPOINT_PAGES: Final = 500
"""How many pages the write-ahead log has when a commit begins to move them into the file."""
MOST_WITHOUT_CHECKPOINT: Final = 10
"""How many commits of a thread make none after one in the event loop: to change the setting each time costs more."""
_PRAGMAS = (
    # For a new file only. Batches span many pages, and a message alone costs the same with either size.
    "page_size=16384",
    "journal_mode=WAL",
    "synchronous=FULL",
    # Some distributions overwrite what is deleted with zeros, which doubles what a queue writes.
    "secure_delete=OFF",
    "temp_store=MEMORY",
    # Small enough to be warm soon: memory that is touched for the first time costs more than a page read again.
    "cache_size=-4000",
    f"wal_autocheckpoint={CHECKPOINT_PAGES}",
)
_INTEGER_BYTES = (1, 2, 3, 4, 6, 8)
"""The sizes in which SQLite keeps integers."""
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SqliteDialect(SqlDialect):
    """A file that any number of processes of one machine may share."""

    name = "sqlite"
    writers = 1
    readers = 2
    transactions_per_commit = 256

    def __init__(self, url: URL, deadline_seconds: float = 10.0) -> None:
        super().__init__(url, deadline_seconds)
        if not url.database or url.database == ":memory:":
            raise InvalidUrl("An SQLite store needs a file, for example sqlite:///bus.db. In memory: memory://")
        self._path = Path(url.database)

    @property
    def server_clock(self) -> ColumnElement[int]:
        return bindparam("clock_ms", callable_=_wall_clock_ms, type_=BigInteger)

    def create_engine(self) -> Engine:
        # Threads keep their connections, and transactions are begun by hand, so neither a pool nor the
        # driver's own idea of transactions is wanted. Waiting for a lock is done in `begin`.
        engine = create_engine(
            self.url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"timeout": 0, "check_same_thread": False, "cached_statements": 256},
        )
        event.listen(engine, "connect", _configure)
        return engine

    @property
    def driver_errors(self) -> type[Exception]:
        return sqlite3.Error

    def create_bell(self, client: str) -> Bell:
        return UnixBell(self._path.with_name(self._path.name + "-bells"), client)

    def id_beside(self, log_id: int) -> int | None:
        # An update leaves alone what has not changed of a blob, but only in a row that keeps its size; and of numbers a
        # row holds as many bytes as they need. Nobody else has negative ids.
        size = next(size for size in _INTEGER_BYTES if log_id < 1 << 8 * size - 1)
        smaller = max((smaller for smaller in _INTEGER_BYTES if smaller < size), default=0)
        return -random.randint(1 + (1 << 8 * smaller - 1 if smaller else 0), 1 << 8 * size - 1)

    def append_at_once(self, now: ColumnElement[int]) -> AppendAtOnce:
        # The fewer calls, the better: after each of them the thread has to win back the interpreter.
        statement = _insert_batch(now)

        def append(transaction: Transaction, one: Append) -> int | None:
            rows = transaction.execute(statement, one.parameters)
            if not rows:
                return None
            last_id, appended_ms, epoch = rows[0]
            batch = StoredBatch(last_id, one.count, one.blob, appended_ms)
            note(transaction.grown, one.log, News(epoch, batch))
            return int(last_id)

        return append

    def run_at_once(self, connection: SqlConnection, function: Callable[[], None], deadline_seconds: float) -> None:
        self._set_durable(connection, True)
        self._allow_checkpoints(connection)
        _when_free(function, deadline_seconds)

    def begin(self, connection: SqlConnection, deadline_seconds: float, *, durable: bool = True) -> None:
        self._set_durable(connection, durable)
        self._allow_checkpoints(connection)
        _when_free(lambda: connection.command("BEGIN IMMEDIATE"), deadline_seconds)

    def begin_at_once(self, connection: SqlConnection) -> bool:
        self._set_durable(connection, False)
        if not connection.commits_without_checkpoint:
            # A checkpoint waits for the disk, whatever the commit that it comes with does.
            connection.setting("PRAGMA wal_autocheckpoint=0")
            connection.commits_without_checkpoint = 1
        try:
            connection.command("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _set_durable(self, connection: SqlConnection, durable: bool) -> None:
        # In WAL mode NORMAL leaves out nothing but the wait for the disk; the next durable commit makes up for it.
        if connection.is_durable != durable:
            connection.command("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")
            connection.is_durable = durable

    def _allow_checkpoints(self, connection: SqlConnection) -> None:
        """Let commits in a thread make checkpoints, again when some were made without."""
        if connection.commits_without_checkpoint:
            connection.commits_without_checkpoint += 1
            if connection.commits_without_checkpoint > MOST_WITHOUT_CHECKPOINT:
                connection.setting(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
                connection.commits_without_checkpoint = 0

    def rollback(self, connection: SqlConnection) -> None:
        # Some errors, such as a full disk, have already rolled back by themselves.
        if connection.driver.in_transaction:
            connection.command("ROLLBACK")

    def lock_schema(self, connection: SqlConnection) -> None:
        self.begin(connection, 30.0)

    def translate(self, error: Exception) -> BusError:
        code = _primary_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreUnavailable(
                f"The file of {self.display_url} is locked by another process that does not let go. "
                "End that process, or wait for it."
            )
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"The disk of {self.display_url} is full; nothing was stored. Make room and try again.")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return AccessDenied(f"The file of {self.display_url} cannot be written. Check its owner and mode.")
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(
                f"The file of {self.display_url} cannot be opened. Check that its folder exists and may be written."
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return StoreError(f"The file of {self.display_url} is not an intact SQLite database: {error}.")
        if code == sqlite3.SQLITE_IOERR:
            return StoreUnavailable(f"The disk of {self.display_url} reports an error: {error}.")
        return self.unexpected(error)

    def inspect(self, connection: SqlConnection) -> Inspection:
        journal = str(connection.setting("PRAGMA journal_mode"))
        synchronous = _SYNCHRONOUS[connection.setting("PRAGMA synchronous")]
        size = connection.setting("PRAGMA page_count") * connection.setting("PRAGMA page_size")
        findings = [
            Finding(
                "durability",
                f"synchronous={synchronous}, journal_mode={journal}: an acknowledged message is on disk and "
                "survives a crash of the process, of the machine, and a power cut.",
                Verdict.GOOD,
            )
            if synchronous in ("FULL", "EXTRA")
            else Finding(
                "durability",
                f"synchronous={synchronous}: a power cut may lose acknowledged messages.",
                Verdict.BAD,
                "Do not change PRAGMA synchronous.",
            ),
            Finding("file", f"{self._path.resolve()}, {size / 1e6:.1f} MB"),
            Finding("sharing", "Any number of processes of this machine may use the file; a network drive must not."),
        ]
        return Inspection("SQLite", sqlite3.sqlite_version, findings)


def _insert_batch(now: ColumnElement[int]) -> ClauseElement:
    """Return a statement that inserts a batch and returns its last id; a trigger moves the end of the log."""
    count, size = bindparam("batch_count", type_=BigInteger), bindparam("batch_size", type_=BigInteger)
    is_alive = or_(logs.c.expires_ms == 0, logs.c.expires_ms > now)
    row = select(
        logs.c.id,
        logs.c.last_id + count,
        count,
        size,
        logs.c.bytes_appended + size,
        now,
        bindparam("batch", type_=LargeBinary),
    ).where(logs.c.name == bindparam("log_name", type_=String), is_alive)
    columns = ["log_id", "last_id", "count", "size", "end_byte", "appended_ms", "blob"]
    # A column of no table: with its table, the batch that is inserted would be taken for a second table to select from.
    epoch = select(logs.c.epoch).where(logs.c.id == column("log_id")).scalar_subquery()
    return insert(batches).from_select(columns, row).returning(batches.c.last_id, batches.c.appended_ms, epoch)


def _configure(connection: sqlite3.Connection, _: object) -> None:
    for pragma in _PRAGMAS:
        # Ten processes that start at once all want to switch the new file to WAL.
        _when_free(partial(connection.execute, f"PRAGMA {pragma}"), deadline_seconds=5.0)


def _when_free(function: Callable[[], object], deadline_seconds: float) -> None:
    """Call a function again and again while another process has the lock that it needs."""
    deadline = time.monotonic() + deadline_seconds
    while True:
        try:
            function()
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            # Shorter and steadier than SQLite's own waiting, which doubles its pauses up to 100 ms.
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return


def _primary_code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
