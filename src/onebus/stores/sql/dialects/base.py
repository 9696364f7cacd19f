"""What differs between databases, and nothing else."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import URL, ColumnElement, Engine

from onebus.errors import BusError, MissingDriver, StoreError, StoreUnavailable
from onebus.stores.base import Inspection
from onebus.stores.sql.bells.base import Bell
from onebus.stores.sql.connection import SqlConnection
from onebus.stores.sql.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Append:
    """A batch on its way to the end of a log."""

    log: str
    blob: bytes
    count: int

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "log_name": self.log,
            "batch": self.blob,
            "batch_count": self.count,
            "batch_size": len(self.blob),
        }


AppendAtOnce = Callable[[Transaction, Append], int | None]
"""Appends, says in the transaction who is to be woken, and returns the last id; None if there is no such log."""


class SqlDialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    """The folder of its migrations."""
    extra: ClassVar[str] = ""
    """The extra of the package that brings its driver."""
    writers: ClassVar[int]
    """How many connections write at the same time."""
    readers: ClassVar[int]
    """How many connections only read."""
    transactions_per_commit: ClassVar[int] = 1
    """How many waiting transactions are committed together, at most."""

    def __init__(self, url: URL, deadline_seconds: float = 10.0) -> None:
        self.url = url
        self.patience_seconds = max(2, math.ceil(deadline_seconds))
        """How long the driver waits for the server, where it can be told."""

    @property
    @abstractmethod
    def server_clock(self) -> ColumnElement[int]:
        """The time in milliseconds since 1970, as part of a statement."""

    @abstractmethod
    def create_engine(self) -> Engine:
        """Return an engine whose connections commit each statement by itself unless told to begin."""

    @property
    @abstractmethod
    def driver_errors(self) -> type[Exception]:
        """What everything that the driver raises is."""

    def append_at_once(self, now: ColumnElement[int]) -> AppendAtOnce | None:
        """Return what appends in one round trip to a log that exists, where the database can do that."""
        return None

    def run_at_once(self, connection: SqlConnection, function: Callable[[], None], deadline_seconds: float) -> None:
        """Run a function that goes to the database once, with what is a transaction by itself."""
        function()

    def id_beside(self, log_id: int) -> int | None:
        """Return an id for a staging log from which batches are moved to another log; None if any is as good."""
        return None

    @abstractmethod
    def create_bell(self, client: str) -> Bell: ...

    @abstractmethod
    def translate(self, error: Exception) -> BusError:
        """Return the error to raise instead of the driver's."""

    @abstractmethod
    def inspect(self, connection: SqlConnection) -> Inspection: ...

    def begin(self, connection: SqlConnection, deadline_seconds: float, *, durable: bool = True) -> None:
        """Begin a transaction that writes; one that is not durable may be forgotten in a power cut."""
        connection.command("BEGIN")

    def begin_at_once(self, connection: SqlConnection) -> bool:
        """Begin a transaction that writes and waits for nothing, neither a lock nor the disk nor a server.

        It need not be durable. Returns whether it has begun: where waiting cannot be excluded, it never does.
        """
        return False

    def commit(self, connection: SqlConnection) -> None:
        connection.command("COMMIT")

    def rollback(self, connection: SqlConnection) -> None:
        connection.command("ROLLBACK")

    def is_conflict(self, error: Exception) -> bool:
        """Return whether a transaction failed only because of another one, and may simply be run again."""
        return False

    @abstractmethod
    def lock_schema(self, connection: SqlConnection) -> None:
        """Begin the transaction of a migration, such that one process migrates at a time."""

    def unlock_schema(self, connection: SqlConnection) -> None:
        """End what `lock_schema` began; called after the commit, or the rollback."""

    def missing_driver(self) -> MissingDriver:
        return MissingDriver(
            f"The store {self.display_url} needs a library that is not installed. "
            f"Run: pip install 'onebus[{self.extra}]'"
        )

    def unavailable(self, reason: object) -> StoreUnavailable:
        return StoreUnavailable(
            f"The store {self.display_url} cannot be reached: {reason}. Check that it runs and that the URL is right."
        )

    def unexpected(self, reason: object) -> StoreError:
        return StoreError(f"The store {self.display_url} refused a statement: {reason}")

    @property
    def display_url(self) -> str:
        # A query may hold a password as well.
        return self.url.set(query={}).render_as_string(hide_password=True)
