"""Where logs are kept while they are measured: a folder, or a server started for this."""

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from bench.processes import Crew, OneProcess, TwoProcesses
from tests.services import MariaDbServer, PostgresServer, RedisServer


class Place(ABC):
    """One kind of store, ready to be opened."""

    name: str
    url: str

    @abstractmethod
    def separate_url(self) -> str:
        """The URL of an empty store that shares nothing with the others but the server."""

    def filling_url(self, url: str) -> str:
        """The same store as `url`, opened such that it takes in much data soon."""
        return url

    def crew(self) -> Crew:
        return TwoProcesses()

    def close(self) -> None:
        """Stop the server, delete the data."""


class MemoryPlace(Place):
    name = "memory"
    url = "memory://bench"

    def __init__(self) -> None:
        self._numbers = count(1)

    def separate_url(self) -> str:
        return f"memory://bench{next(self._numbers)}"

    def crew(self) -> Crew:
        return OneProcess()


class SqlitePlace(Place):
    name = "sqlite"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onebus-bench-"))
        self._numbers = count(1)
        self.url = self.separate_url()

    def separate_url(self) -> str:
        return f"sqlite:///{self.new_file()}"

    def new_file(self) -> Path:
        return self.folder / f"bus{next(self._numbers)}.db"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisPlace(Place):
    name = "redis"

    def __init__(self) -> None:
        self.server = RedisServer()
        self.server.__enter__()
        self.url = self.server.url
        self._numbers = count(1)

    def separate_url(self) -> str:
        return f"{self.server.url}/{next(self._numbers)}"

    def close(self) -> None:
        self.server.close()


class PostgresPlace(Place):
    name = "postgres"

    def __init__(self) -> None:
        self.server = PostgresServer()
        self.server.__enter__()
        self.url = self.server.url
        self._numbers = count(1)

    def separate_url(self) -> str:
        database = f"bench{next(self._numbers)}"
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}")  # type: ignore[arg-type, unused-ignore]
        return f"{self.server.url.rpartition('/')[0]}/{database}"

    def filling_url(self, url: str) -> str:
        return f"{url}?options=-csynchronous_commit%3Doff"

    def close(self) -> None:
        self.server.close()


class MariaDbPlace(Place):
    name = "mariadb"

    def __init__(self) -> None:
        self.server = MariaDbServer()
        self.server.__enter__()
        self.url = self.server.url

    def separate_url(self) -> str:
        raise NotImplementedError("the server's user may not create databases")

    def close(self) -> None:
        self.server.close()


PLACES: dict[str, type[Place]] = {
    place.name: place for place in (MemoryPlace, SqlitePlace, RedisPlace, PostgresPlace, MariaDbPlace)
}


@contextmanager
def opened(kind: type[Place]) -> Iterator[Place]:
    place = kind()
    try:
        yield place
    finally:
        place.close()
