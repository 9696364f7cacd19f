"""MySQL and MariaDB: row locks put writers in order, datagrams wake readers."""

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Engine,
    LargeBinary,
    String,
    bindparam,
    case,
    create_engine,
    event,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.pool import NullPool
from sqlalchemy.sql import ClauseElement

from onebus.errors import AccessDenied, BusError, PayloadTooLarge, StoreError, StoreFull, StoreUnavailable
from onebus.log.stored import StoredBatch
from onebus.stores.base import Finding, Inspection, Verdict
from onebus.stores.news import News
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.bells.udp import UdpBell
from onebus.stores.sql.connection import Answer, SqlConnection
from onebus.stores.sql.dialects.base import Append, AppendAtOnce, SqlDialect
from onebus.stores.sql.tables import batches, bells, logs
from onebus.stores.sql.transaction import Transaction

_log = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 5
MAX_KNOWN_LOGS: Final = 10_000
SCHEMA_LOCK = "onebus-schema"
SCHEMA_LOCK_SECONDS = 30

_DENIED = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
_FULL = {1021, 1114, 3675}
_CONFLICT = {1205, 1213}
_GONE = {1040, 1053, 1152, 1158, 1159, 1160, 1161, 2002, 2003, 2006, 2013, 2055}


_find_life = select(logs.c.id, logs.c.epoch).where(logs.c.name == bindparam("log_name"))


class MysqlDialect(SqlDialect):
    """A MySQL server from 8.0 or a MariaDB server from 10.6."""

    name = "mysql"
    extra = "mysql"
    writers = 4
    readers = 2

    @property
    def server_clock(self) -> ColumnElement[int]:
        # SYSDATE is the time of the evaluation; NOW would be that of the statement, before it waited for a lock.
        return literal_column("CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)", BigInteger)

    def create_engine(self) -> Engine:
        try:
            import pymysql  # noqa: F401
            from pymysql.constants import CLIENT
        except ImportError as error:
            raise self.missing_driver() from error
        engine = create_engine(
            self.url.set(drivername="mysql+pymysql").update_query_dict({"charset": "utf8mb4"}),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={
                # SQLAlchemy sets the first by itself, but not along with another one. The second lets several
                # statements travel in one packet.
                "client_flag": CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
                "connect_timeout": self.patience_seconds,
                "read_timeout": self.patience_seconds + LOCK_WAIT_SECONDS,
                "write_timeout": self.patience_seconds,
            },
        )
        event.listen(engine, "connect", _configure)
        return engine

    @property
    def driver_errors(self) -> type[Exception]:
        import pymysql

        return pymysql.Error

    def append_at_once(self, now: ColumnElement[int]) -> AppendAtOnce:
        statements = _append(now)
        lives = _Lives()

        def append(transaction: Transaction, one: Append) -> int | None:
            life = lives.find(transaction, one.log)
            if life is None:
                return None
            log_id, epoch = life
            answers = transaction.send_together(statements, {"log": log_id, "log_epoch": epoch, **one.parameters})
            _, moved, stored, _ = islice(answers, 4)
            if not moved.row_count:
                lives.forget(one.log)
                return None
            last_id, appended_ms = moved.last_insert_id, stored.last_insert_id
            batch = StoredBatch(last_id, one.count, one.blob, appended_ms)
            transaction.grown[one.log] = News(epoch, batch)
            transaction.bells = self._bells(answers)
            return last_id

        return append

    def _bells(self, answers: Iterator[Answer]) -> Iterator[tuple[str, bytes]]:
        """Yield the bells from an answer that comes after the commit, when nothing may fail any more."""
        try:
            for answer in answers:
                yield from ((address, secret) for address, secret in answer.rows)
        except self.driver_errors as error:
            _log.debug("%s did not say whom to wake; they look by themselves: %s", self.display_url, error)

    def create_bell(self, client: str) -> Bell:
        return UdpBell(self.url.host or "127.0.0.1", self.url.port or 3306)

    def is_conflict(self, error: Exception) -> bool:
        return _code(error) in _CONFLICT

    def lock_schema(self, connection: SqlConnection) -> None:
        # MySQL commits before and after every CREATE TABLE, so a lock of the session has to hold instead.
        if connection.setting(f"SELECT GET_LOCK('{SCHEMA_LOCK}', {SCHEMA_LOCK_SECONDS})") != 1:
            raise StoreUnavailable(f"{self.display_url}: another process is migrating its tables and does not end.")

    def unlock_schema(self, connection: SqlConnection) -> None:
        connection.command(f"SELECT RELEASE_LOCK('{SCHEMA_LOCK}')")

    def translate(self, error: Exception) -> BusError:
        code, reason = _code(error), _reason(error)
        if code in _DENIED:
            return AccessDenied(f"{self.display_url} refuses the user, the password, or the rights: {reason}.")
        if code == 1049:
            return self.unavailable(f"{reason} (create it with: CREATE DATABASE)")
        if code == 1153:
            return PayloadTooLarge(
                f"{self.display_url} accepts no packet of this size; nothing was stored. Raise max_allowed_packet."
            )
        if code in _FULL:
            return StoreFull(f"{self.display_url} has no room left; nothing was stored: {reason}.")
        if code in _GONE or code == 0:
            return self.unavailable(reason)
        if code in _CONFLICT:
            return StoreUnavailable(f"{self.display_url}: the log is locked by others for too long: {reason}.")
        return StoreError(f"The store {self.display_url} refused a statement: {reason}")

    def inspect(self, connection: SqlConnection) -> Inspection:
        version = str(connection.setting("SELECT VERSION()"))
        flush = int(connection.setting("SELECT @@innodb_flush_log_at_trx_commit"))
        packet = int(connection.setting("SELECT @@max_allowed_packet"))
        durability = (
            Finding(
                "durability",
                "innodb_flush_log_at_trx_commit=1: an acknowledged message is on the server's disk.",
                Verdict.GOOD,
            )
            if flush == 1
            else Finding(
                "durability",
                f"innodb_flush_log_at_trx_commit={flush}: a crash may lose up to a second of acknowledged messages.",
                Verdict.BAD,
                "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and put it into the server's configuration.",
            )
        )
        size = Finding(
            "batch size",
            f"max_allowed_packet={packet // 1024**2} MiB",
            Verdict.GOOD if packet >= 16 * 1024**2 else Verdict.BAD,
            "" if packet >= 16 * 1024**2 else "Set max_allowed_packet to 16M or more: a batch may have 8 MiB.",
        )
        wake_up = Finding(
            "wake-up", "Readers are woken by datagrams between the clients; where UDP is blocked, they poll."
        )
        return Inspection("MariaDB" if "MariaDB" in version else "MySQL", version, [durability, size, wake_up])


class _Lives:
    """The id and the epoch of logs that were appended to before: what an append has to know before it is sent."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, str]] = {}

    def find(self, transaction: Transaction, log: str) -> tuple[int, str] | None:
        life = self._by_name.get(log)
        if life is None and (rows := transaction.execute(_find_life, {"log_name": log})):
            if len(self._by_name) >= MAX_KNOWN_LOGS:
                self._by_name.clear()
            ((log_id, epoch),) = rows
            life = self._by_name[log] = (log_id, epoch)
        return life

    def forget(self, log: str) -> None:
        self._by_name.pop(log, None)


def _append(now: ColumnElement[int]) -> tuple[ClauseElement, ...]:
    """Return a transaction that appends to a log if it lives, and a list of the bells to ring after that.

    Nothing has to be asked in between: what is made LAST_INSERT_ID comes along with the answer to a statement. The
    second one is the last id, the third one the time.
    """
    count, size = bindparam("batch_count", type_=BigInteger), bindparam("batch_size", type_=BigInteger)
    is_log = logs.c.id == bindparam("log", type_=BigInteger)
    is_alive = or_(logs.c.expires_ms == 0, logs.c.expires_ms > now)
    move_the_end = (
        update(logs)
        .where(is_log, logs.c.epoch == bindparam("log_epoch", type_=String), is_alive)
        .values(
            last_id=func.last_insert_id(logs.c.last_id + count),
            bytes_appended=logs.c.bytes_appended + size,
            expires_ms=case((logs.c.ttl_ms > 0, now + logs.c.ttl_ms), else_=0),
        )
    )
    row = select(
        logs.c.id,
        logs.c.last_id,
        count,
        size,
        logs.c.bytes_appended,
        func.last_insert_id(now),
        bindparam("batch", type_=LargeBinary),
    ).where(is_log, func.row_count() == 1)
    columns = ["log_id", "last_id", "count", "size", "end_byte", "appended_ms", "blob"]
    store = insert(batches).from_select(columns, row)
    # Asked after the commit: who registers later than that finds the batch by looking.
    list_bells = select(bells.c.address, bells.c.secret).where(bells.c.expires_ms > now)
    return text("BEGIN"), move_the_end, store, text("COMMIT"), list_bells


def _configure(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}")


def _code(error: Exception) -> int:
    code, _ = _arguments(error)
    return code if isinstance(code, int) else 0


def _reason(error: Exception) -> str:
    _, reason = _arguments(error)
    return str(reason or error)


def _arguments(error: Exception) -> tuple[object, object]:
    """Return the number and the text that PyMySQL puts into its errors, where it does."""
    arguments: tuple[object, ...] = getattr(error, "args", ())
    code, reason, *_ = (*arguments, None, None)
    return code, reason
