"""The schema, one numbered SQL file per step and database; a database is brought up to date when it is opened."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select

from onebus.errors import SchemaTooNew
from onebus.stores.sql.connection import SqlConnection
from onebus.stores.sql.dialects.base import SqlDialect

_schema = Table("onebus_schema", MetaData(), Column("version", Integer, primary_key=True, autoincrement=False))
_newest_version = select(func.coalesce(func.max(_schema.c.version), 0))
_add_version = insert(_schema)


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    statements: tuple[str, ...]


@cache
def migrations_of(dialect_name: str) -> tuple[Migration, ...]:
    """Return the steps of a dialect in order."""
    steps = [entry for entry in files(__name__).joinpath(dialect_name).iterdir() if entry.name.endswith(".sql")]
    return tuple(
        Migration(int(step.name.partition("_")[0]), _statements(step.read_text()))
        for step in sorted(steps, key=lambda step: step.name)
    )


def migrate(connection: SqlConnection, dialect: SqlDialect, migrations: tuple[Migration, ...] | None = None) -> None:
    """Run the steps that the database has not seen. Ten processes may do so at once: one works, nine wait.

    Raises:
        SchemaTooNew: the database has seen steps that are not known here.
    """
    steps = migrations_of(dialect.name) if migrations is None else migrations
    if _is_at(connection, dialect, steps[-1].version):
        return
    dialect.lock_schema(connection)
    try:
        connection.command("CREATE TABLE IF NOT EXISTS onebus_schema (version INTEGER NOT NULL PRIMARY KEY)")
        version = _version(connection)
        if version > steps[-1].version:
            raise SchemaTooNew(
                f"{dialect.display_url} has schema version {version}, but this onebus knows only "
                f"{steps[-1].version}. Upgrade onebus in every process that uses it."
            )
        for step in steps:
            if step.version > version:
                for statement in step.statements:
                    connection.command(statement)
                connection.execute(_add_version, {"version": step.version})
        dialect.commit(connection)
    except BaseException:
        dialect.rollback(connection)
        raise
    finally:
        dialect.unlock_schema(connection)


def _is_at(connection: SqlConnection, dialect: SqlDialect, version: int) -> bool:
    """Look without a lock, which is all that most starts need; an error means that there is no such table yet."""
    try:
        return _version(connection) == version
    except dialect.driver_errors:
        return False


def _version(connection: SqlConnection) -> int:
    return int(connection.execute(_newest_version, {})[0][0])


def _statements(script: str) -> tuple[str, ...]:
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return tuple(statement.strip() for statement in "\n".join(lines).split(";\n") if statement.strip(" \n;"))
