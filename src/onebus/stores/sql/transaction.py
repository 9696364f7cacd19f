"""What the statements of one transaction share."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, CursorResult, Executable, bindparam, select
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.schema import Table

from onebus.stores.sql.tables import logs


class Lookups:
    """The statements that need the store's clock, built once per store."""

    def __init__(self, now: ColumnElement[int]) -> None:
        self.now = now
        """The time in milliseconds, as part of a statement: it costs no round trip."""
        self.find = select(logs, now.label("now_ms")).where(logs.c.name == bindparam("log_name"))
        self.find_locked = self.find.with_for_update()
        self.now_ms = select(now)


@dataclass(slots=True)
class Transaction:
    """A transaction in progress; it runs in a worker's thread and ends when the worker commits it."""

    connection: Connection
    lookups: Lookups
    grown: set[str] = field(default_factory=set)
    """The logs whose watchers are to be woken once this is committed."""
    bells: list[str] = field(default_factory=list)
    """Where to ring after the commit, if the bell needs to be told."""

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[*tuple[Any, ...]]:
        return self.connection.execute(statement, parameters)

    @property
    def now(self) -> ColumnElement[int]:
        return self.lookups.now

    def now_ms(self) -> int:
        return int(self.execute(self.lookups.now_ms).scalar_one())

    def insert_if_absent(self, table: Table) -> Insert:
        """Return an INSERT that does nothing when the row exists."""
        match self.connection.dialect.name:
            case "postgresql":
                return postgresql.insert(table).on_conflict_do_nothing()
            case "sqlite":
                return sqlite.insert(table).on_conflict_do_nothing()
            case _:
                key = next(iter(table.primary_key.columns))
                return mysql.insert(table).on_duplicate_key_update({key.name: key})

    def upsert(self, table: Table, column: str) -> Insert:
        """Return an INSERT that sets `column` when the row exists."""
        keys = list(table.primary_key.columns)
        match self.connection.dialect.name:
            case "postgresql":
                insert = postgresql.insert(table)
                return insert.on_conflict_do_update(index_elements=keys, set_={column: insert.excluded[column]})
            case "sqlite":
                upsert = sqlite.insert(table)
                return upsert.on_conflict_do_update(index_elements=keys, set_={column: upsert.excluded[column]})
            case _:
                replacing = mysql.insert(table)
                return replacing.on_duplicate_key_update({column: replacing.inserted[column]})
