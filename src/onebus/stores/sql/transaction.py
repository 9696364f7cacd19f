"""What the statements of one transaction share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, func, or_, select
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.schema import Table

from onebus.stores.news import Grown
from onebus.stores.sql.connection import Answer, Rows, SqlConnection
from onebus.stores.sql.tables import bells, listeners, logs, records

_NOTHING: Mapping[str, Any] = {}


class Lookups:
    """The statements that need the store's clock, made once per store.

    ``now`` is the time in milliseconds as part of a statement: asking for it costs no round trip.
    """

    def __init__(self, now: ColumnElement[int]) -> None:
        def alive(table: Table) -> ColumnElement[bool]:
            return or_(table.c.expires_ms == 0, table.c.expires_ms > now)

        def expired(table: Table) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
            return table.c.expires_ms > 0, table.c.expires_ms <= now

        self.now_ms = select(now)
        self.find_log = select(
            logs.c.id,
            logs.c.epoch,
            logs.c.first_id,
            logs.c.last_id,
            logs.c.head,
            logs.c.fence,
            logs.c.bytes_appended,
            logs.c.ttl_ms,
            logs.c.expires_ms,
            now.label("now_ms"),
        ).where(logs.c.name == bindparam("log_name"))
        self.lock_log = self.find_log.with_for_update()
        self.list_logs = select(logs.c.name).where(
            alive(logs), logs.c.name >= bindparam("lowest"), logs.c.name <= bindparam("highest")
        )
        self.expired_logs = select(logs.c.name).where(*expired(logs)).limit(bindparam("at_most"))
        self.find_place = [
            select(table.c.name).where(
                or_(table.c.name == bindparam("place"), table.c.name == bindparam("anchor")), alive(table)
            )
            for table in (logs, records)
        ]
        self.find_record = select(
            records.c.version, records.c.fields, records.c.ttl_ms, records.c.expires_ms, now.label("now_ms")
        ).where(records.c.name == bindparam("record_name"))
        self.lock_record = self.find_record.with_for_update()
        self.count_listeners = select(func.count()).where(
            listeners.c.name == bindparam("signal"), listeners.c.expires_ms > now
        )
        self.bells = select(bells.c.address, bells.c.secret).where(bells.c.expires_ms > now)
        self.sweep_records = delete(records).where(*expired(records))
        self.sweep_listeners = delete(listeners).where(*expired(listeners))
        self.sweep_bells = delete(bells).where(*expired(bells))


@dataclass(slots=True)
class Transaction:
    """A transaction in progress; it runs in a worker's thread and ends when the worker commits it."""

    connection: SqlConnection
    lookups: Lookups
    grown: Grown = field(default_factory=dict)
    """The logs whose watchers are to be woken once this is committed, and what they may be told."""
    bells: Iterable[tuple[str, bytes]] = ()
    """Where to ring after the commit, and the secret of each place, if the bell needs to be told; read once."""

    @property
    def dialect_name(self) -> str:
        return self.connection.dialect_name

    def execute(self, statement: ClauseElement, parameters: Mapping[str, Any] = _NOTHING) -> Rows:
        return self.connection.execute(statement, parameters)

    def send_together(self, statements: Sequence[ClauseElement], parameters: Mapping[str, Any]) -> Iterator[Answer]:
        return self.connection.send_together(statements, parameters)

    def perform(self, statement: ClauseElement, parameters: Sequence[Mapping[str, Any]]) -> None:
        self.connection.perform(statement, parameters)

    def now_ms(self) -> int:
        return int(self.execute(self.lookups.now_ms)[0][0])
