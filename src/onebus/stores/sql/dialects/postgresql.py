"""PostgreSQL: row locks put writers in order, NOTIFY wakes readers."""

import os
from contextlib import suppress
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Engine,
    LargeBinary,
    Select,
    String,
    bindparam,
    case,
    cast,
    create_engine,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.pool import NullPool

from onebus.errors import AccessDenied, BusError, StoreFull
from onebus.stores.base import Finding, Inspection, Verdict
from onebus.stores.news import MAX_NEWS_BYTES
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.connection import SqlConnection
from onebus.stores.sql.dialects.base import Append, AppendAtOnce, SqlDialect
from onebus.stores.sql.tables import batches, logs
from onebus.stores.sql.transaction import Transaction

CHANNEL = "onebus"
"""The channel on which logs are said to have grown."""

SCHEMA_LOCK = 0x6F6E65627573
"""The number of the advisory lock under which migrations run: "onebus" in hexadecimal."""


class PostgresqlDialect(SqlDialect):
    """A PostgreSQL server, version 12 or newer."""

    name = "postgresql"
    extra = "postgres"
    writers = 4
    readers = 2

    @property
    def server_clock(self) -> ColumnElement[int]:
        return cast(func.extract("epoch", func.clock_timestamp()) * literal(1000), BigInteger)

    def create_engine(self) -> Engine:
        try:
            import psycopg
            from psycopg.pq import Format
        except ImportError as error:
            raise self.missing_driver() from error

        class BinaryCursor(psycopg.Cursor[Any]):
            """Receives batches as they are, not as hexadecimal text of twice the size."""

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self.format = Format.BINARY

        return create_engine(
            self.url.set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={
                "cursor_factory": BinaryCursor,
                "connect_timeout": self.patience_seconds,
                "tcp_user_timeout": self.patience_seconds * 1000,
                "application_name": f"onebus {os.getpid()}",
            },
        )

    def append_at_once(self, now: ColumnElement[int]) -> AppendAtOnce:
        statement = _append_and_notify(now)

        def append(transaction: Transaction, one: Append) -> int | None:
            rows = transaction.execute(statement, one.parameters)
            return int(rows[0][0]) if rows else None

        return append

    @property
    def driver_errors(self) -> type[Exception]:
        import psycopg

        return psycopg.Error

    def begin(self, connection: SqlConnection, deadline_seconds: float, *, durable: bool = True) -> None:
        connection.start_pipeline()
        connection.command("BEGIN ISOLATION LEVEL READ COMMITTED")
        if not durable:
            connection.command("SET LOCAL synchronous_commit TO off")

    def commit(self, connection: SqlConnection) -> None:
        connection.command("COMMIT")
        connection.end_pipeline()

    def rollback(self, connection: SqlConnection) -> None:
        with suppress(self.driver_errors):
            connection.end_pipeline()
        connection.command("ROLLBACK")

    def create_bell(self, client: str) -> Bell:
        from onebus.stores.sql.bells.notify import NotifyBell

        return NotifyBell(self.url.set(drivername="postgresql"), CHANNEL, self.patience_seconds)

    def is_conflict(self, error: Exception) -> bool:
        return _sql_state(error) in ("40001", "40P01")

    def lock_schema(self, connection: SqlConnection) -> None:
        connection.command("BEGIN")
        connection.command(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")

    def translate(self, error: Exception) -> BusError:
        state = _sql_state(error)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if state.startswith("28") or "authentication failed" in reason or "no password supplied" in str(error):
            return AccessDenied(f"{self.display_url} refuses the user or the password. Check both in the URL.")
        if state == "42501":
            return AccessDenied(
                f"{self.display_url}: {reason}. Grant the user CREATE on the schema, or own its tables."
            )
        if state == "3D000":
            return self.unavailable(f"{reason} (create it with: createdb)")
        if state in ("53100", "53200", "54000"):
            return StoreFull(f"{self.display_url} has no room left; nothing was stored: {reason}.")
        # Class 57P is the server going down, 08 a broken connection; an error without a state never reached it.
        if not state or state.startswith(("08", "57P", "53300")):
            return self.unavailable(reason)
        return self.unexpected(reason)

    def inspect(self, connection: SqlConnection) -> Inspection:
        synchronous = connection.setting("SHOW synchronous_commit")
        fsync = connection.setting("SHOW fsync")
        is_durable = synchronous not in ("off", "local") and fsync == "on"
        durability = (
            Finding(
                "durability",
                f"synchronous_commit={synchronous}, fsync={fsync}: an acknowledged message is on the server's disk.",
                Verdict.GOOD,
            )
            if is_durable
            else Finding(
                "durability",
                f"synchronous_commit={synchronous}, fsync={fsync}: a crash of the server may lose acknowledged "
                "messages.",
                Verdict.BAD,
                "Set fsync=on, and for the role of onebus: ALTER ROLE … SET synchronous_commit = on.",
            )
        )
        limit = connection.setting("SHOW max_connections")
        findings = [
            durability,
            Finding("wake-up", "Readers are woken by LISTEN/NOTIFY; through a pooler, use session pooling."),
            Finding(
                "connections",
                f"This process uses up to {self.writers + self.readers + 1} of the server's {limit} connections.",
            ),
        ]
        return Inspection("PostgreSQL", str(connection.setting("SHOW server_version")), findings)


def _append_and_notify(now: ColumnElement[int]) -> Select[Any]:
    """Return one statement that appends, wakes everybody, and selects the last id of the batch."""
    count, size = bindparam("batch_count", type_=BigInteger), bindparam("batch_size", type_=BigInteger)
    name, blob = bindparam("log_name", type_=String), bindparam("batch", type_=LargeBinary)
    is_alive = or_(logs.c.expires_ms == 0, logs.c.expires_ms > now)
    tail = (
        update(logs)
        .where(logs.c.name == name, is_alive)
        .values(
            last_id=logs.c.last_id + count,
            bytes_appended=logs.c.bytes_appended + size,
            expires_ms=case((logs.c.ttl_ms > 0, now + logs.c.ttl_ms), else_=0),
        )
        .returning(logs.c.id, logs.c.epoch, logs.c.last_id, logs.c.bytes_appended, now.label("now_ms"))
        .cte("tail")
    )
    row = select(tail.c.id, tail.c.last_id, count, size, tail.c.bytes_appended, tail.c.now_ms, blob)
    columns = ["log_id", "last_id", "count", "size", "end_byte", "appended_ms", "blob"]
    stored = insert(batches).from_select(columns, row).returning(batches.c.last_id).cte("stored")
    # The same words that `News.pack` writes.
    head = func.concat_ws(" ", tail.c.epoch, tail.c.last_id, count, tail.c.now_ms, "0", "") + "\n"
    packed = func.encode(func.convert_to(head, "UTF8").op("||")(blob), "base64")
    payload = case((size <= MAX_NEWS_BYTES, func.concat(name, "\n", packed)), else_=name)
    return select(tail.c.last_id, func.pg_notify(CHANNEL, payload)).add_cte(stored)


def _sql_state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""
