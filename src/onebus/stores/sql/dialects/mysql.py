"""MySQL and MariaDB: row locks put writers in order, datagrams wake readers."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Engine, cast, create_engine, event, func, literal_column
from sqlalchemy.pool import NullPool

from onebus.errors import AccessDenied, BusError, PayloadTooLarge, StoreError, StoreFull, StoreUnavailable
from onebus.stores.base import Finding, Inspection, Verdict
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.bells.udp import UdpBell
from onebus.stores.sql.connection import SqlConnection
from onebus.stores.sql.dialects.base import SqlDialect

LOCK_WAIT_SECONDS = 5
SCHEMA_LOCK = "onebus-schema"
SCHEMA_LOCK_SECONDS = 30

_DENIED = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
_FULL = {1021, 1114, 3675}
_CONFLICT = {1205, 1213}
_GONE = {1040, 1053, 1152, 1158, 1159, 1160, 1161, 2002, 2003, 2006, 2013, 2055}


class MysqlDialect(SqlDialect):
    """A MySQL server from 8.0 or a MariaDB server from 10.6."""

    name = "mysql"
    extra = "mysql"
    writers = 4
    readers = 2

    @property
    def server_clock(self) -> ColumnElement[int]:
        # SYSDATE is the time of the evaluation; NOW would be that of the statement, before it waited for a lock.
        return cast(func.unix_timestamp(literal_column("SYSDATE(6)")) * 1000, BigInteger)

    def create_engine(self) -> Engine:
        try:
            import pymysql  # noqa: F401
        except ImportError as error:
            raise self.missing_driver() from error
        engine = create_engine(
            self.url.set(drivername="mysql+pymysql").update_query_dict({"charset": "utf8mb4"}),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={
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
