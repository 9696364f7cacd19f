"""Inserts that cope with a row that exists, in the words of each database; each is made once."""

from functools import cache
from typing import Any

from sqlalchemy import bindparam
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.schema import Table


@cache
def insert_if_absent(dialect_name: str, table: Table, *, with_id: bool = False) -> Insert:
    """Return an INSERT that does nothing when the row exists. The database chooses its id, unless there is one."""
    columns = [column.name for column in table.columns if with_id or column.name != "id"]
    values: dict[str, Any] = {name: bindparam(name) for name in columns}
    match dialect_name:
        case "postgresql":
            return postgresql.insert(table).values(values).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).values(values).on_conflict_do_nothing()
        case _:
            return mysql.insert(table).values(values).on_duplicate_key_update(name=table.c.name)


@cache
def upsert(dialect_name: str, table: Table, *columns: str) -> Insert:
    """Return an INSERT that sets `columns` when the row exists."""
    keys = list(table.primary_key.columns)
    match dialect_name:
        case "postgresql":
            insert = postgresql.insert(table)
            return insert.on_conflict_do_update(
                index_elements=keys, set_={name: insert.excluded[name] for name in columns}
            )
        case "sqlite":
            replacing = sqlite.insert(table)
            return replacing.on_conflict_do_update(
                index_elements=keys, set_={name: replacing.excluded[name] for name in columns}
            )
        case _:
            updating = mysql.insert(table)
            return updating.on_duplicate_key_update({name: updating.inserted[name] for name in columns})
