"""The schema, one numbered SQL file per step and database; a database is brought up to date when it is opened."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, inspect, select
from sqlalchemy.schema import CreateTable

from onebus.errors import SchemaTooNew
from onebus.stores.sql.dialects.base import SqlDialect

_schema = Table("onebus_schema", MetaData(), Column("version", Integer, primary_key=True, autoincrement=False))


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


def migrate(connection: Connection, dialect: SqlDialect, migrations: tuple[Migration, ...] | None = None) -> None:
    """Run the steps that the database has not seen. Ten processes may do so at once: one works, nine wait.

    Raises:
        SchemaTooNew: the database has seen steps that are not known here.
    """
    steps = migrations_of(dialect.name) if migrations is None else migrations
    if _version(connection) == steps[-1].version:
        return
    _end_reading(connection)
    dialect.lock_schema(connection)
    try:
        version = _version(connection)
        if version > steps[-1].version:
            raise SchemaTooNew(
                f"{dialect.display_url} has schema version {version}, but this onebus knows only "
                f"{steps[-1].version}. Upgrade onebus in every process that uses it."
            )
        if version == 0:
            connection.execute(CreateTable(_schema, if_not_exists=True))
        for step in steps:
            if step.version > version:
                for statement in step.statements:
                    connection.exec_driver_sql(statement)
                connection.execute(insert(_schema).values(version=step.version))
        dialect.commit(connection)
    except BaseException:
        dialect.rollback(connection)
        raise
    finally:
        dialect.unlock_schema(connection)


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(_schema.name):
        return 0
    return int(connection.execute(select(func.coalesce(func.max(_schema.c.version), 0))).scalar_one())


def _end_reading(connection: Connection) -> None:
    if connection.in_transaction():
        connection.rollback()


def _statements(script: str) -> tuple[str, ...]:
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return tuple(statement.strip() for statement in "\n".join(lines).split(";\n") if statement.strip(" \n;"))
