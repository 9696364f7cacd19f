"""A driver's connection that runs SQLAlchemy Core statements, each compiled once.

SQLAlchemy writes the SQL of each database and knows its drivers. Its own way of running a statement costs
some 50 µs, seven times what SQLite needs to answer, so statements are handed to the driver directly.
That is possible because all of them are made once, with named parameters, of plain types.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, Engine, PoolProxiedConnection
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

Parameters = Mapping[str, Any]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one of several statements brought about."""

    row_count: int
    last_insert_id: int
    rows: Rows


class Prepared:
    """A statement in the words of one database, and how its parameters are given to the driver."""

    def __init__(self, statement: ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        if not isinstance(compiled, SQLCompiler):
            raise TypeError(f"{statement!r} cannot be executed")
        self.statement = statement
        """Kept alive, since it is found by its identity."""
        self.text = str(compiled)
        self.returns_rows = bool(getattr(statement, "is_select", False) or compiled.effective_returning)
        self._is_positional = compiled.positional
        self._names = tuple(compiled.positiontup or compiled.binds)
        own = compiled.binds.items()
        self._called = {name: bind.callable for name, bind in own if bind.callable is not None}
        self._constant = {name: bind.value for name, bind in own if bind.callable is None and not bind.required}

    def arguments(self, parameters: Parameters) -> Any:
        if self._called:
            called = {name: function() for name, function in self._called.items()}
            parameters = {**self._constant, **called, **parameters}
        elif self._constant:
            parameters = {**self._constant, **parameters}
        if self._is_positional:
            return tuple([parameters[name] for name in self._names])
        return {name: parameters[name] for name in self._names}


class Database:
    """Where connections come from; threads share it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._prepared: dict[int, Prepared] = {}

    @property
    def dialect_name(self) -> str:
        return self._engine.dialect.name

    def connect(self) -> "SqlConnection":
        """Open a connection; errors are the driver's."""
        return SqlConnection(self, self._engine.raw_connection())

    def prepare(self, statement: ClauseElement) -> Prepared:
        prepared = self._prepared.get(id(statement))
        if prepared is None:
            prepared = self._prepared[id(statement)] = Prepared(statement, self._engine.dialect)
        return prepared

    def close(self) -> None:
        self._engine.dispose()


class SqlConnection:
    """One connection, used by one thread. It commits each statement by itself unless told to begin."""

    def __init__(self, database: Database, pooled: PoolProxiedConnection) -> None:
        self._database = database
        self._pooled = pooled
        self.driver: Any = pooled.driver_connection
        """The connection as the driver knows it."""
        self._cursor: Any = pooled.cursor()
        self._pipeline: AbstractContextManager[Any] | None = None
        self.is_durable = True
        """Whether a commit waits for the disk, where that is a property of the connection."""
        self.commits_without_checkpoint = 0
        """How many there were since commits stopped to tidy up; 0 while they do, and where there is no such thing."""

    @property
    def dialect_name(self) -> str:
        return self._database.dialect_name

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody on the way to the server can read along, as far as PyMySQL tells."""
        return bool(getattr(self.driver, "_secure", True))

    def execute(self, statement: ClauseElement, parameters: Parameters) -> Rows:
        """Run a statement and return its rows."""
        prepared = self._database.prepare(statement)
        cursor = self._ready_cursor()
        cursor.execute(prepared.text, prepared.arguments(parameters))
        return list(cursor.fetchall()) if prepared.returns_rows else []

    def send_together(self, statements: Sequence[ClauseElement], parameters: Parameters) -> Iterator[Answer]:
        """Send statements in one packet, where the driver can do that, and yield their answers as they come.

        A statement that fails raises, and those after it are not run. Answers may be left behind unread.
        """
        prepared = [self._database.prepare(statement) for statement in statements]
        cursor = self._ready_cursor()
        # The driver writes the parameters into one statement at a time, since several may use the same names.
        cursor.execute(";".join([cursor.mogrify(one.text, one.arguments(parameters)) for one in prepared]))
        is_answered = True
        while is_answered:
            yield Answer(cursor.rowcount, cursor.lastrowid, list(cursor.fetchall()))
            is_answered = cursor.nextset()

    def perform(self, statement: ClauseElement, parameters: Sequence[Parameters]) -> None:
        """Run a statement once for each of the parameters, whatever it returns."""
        prepared = self._database.prepare(statement)
        if len(parameters) == 1:
            self._ready_cursor().execute(prepared.text, prepared.arguments(parameters[0]))
        elif parameters:
            self._ready_cursor().executemany(prepared.text, [prepared.arguments(one) for one in parameters])

    def command(self, text: str) -> None:
        """Run a statement that has neither parameters nor rows, as it is written."""
        self._ready_cursor().execute(text)

    def setting(self, text: str) -> Any:
        """Return the one value that a statement selects."""
        self._cursor.execute(text)
        return self._cursor.fetchall()[0][0]

    def start_pipeline(self) -> None:
        """Send statements without waiting for the server, except for rows, where the driver can do that."""
        self._pipeline = self.driver.pipeline()
        self._pipeline.__enter__()

    def end_pipeline(self) -> None:
        """Wait for what was sent; raises what it failed with."""
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            pipeline.__exit__(None, None, None)

    def close(self) -> None:
        self._pooled.invalidate()

    def _ready_cursor(self) -> Any:
        # A cursor whose answer is still on its way cannot be used for the next statement.
        return self._cursor if self._pipeline is None else self._pooled.cursor()
