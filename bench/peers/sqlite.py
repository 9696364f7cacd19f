"""SQLite: plain sqlite3, as durable as our store (WAL, synchronous=FULL)."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from bench import targets
from bench.messages import payloads
from bench.peers.peer import Peer, Setting
from bench.places import SqlitePlace
from bench.processes import Gate
from bench.producers import wall_clock_ms
from bench.timing import Span, Stopwatch
from onebus.log.batch import Entry, encode

FULL_SINGLE: Final = 2_000


def peers(place: SqlitePlace, setting: Setting, batch_messages: Callable[[], int]) -> list[Peer]:
    """`batch_messages` tells how many messages a batch of our own run held."""

    def batched() -> float:
        messages = setting.scale.own(setting.size)
        job = InsertBatches(str(place.new_file()), messages, setting.size, batch_messages())
        return setting.crew.alone(job).rate

    def single() -> float:
        return setting.crew.alone(InsertOnes(str(place.new_file()), single_messages, setting.size)).rate

    single_messages = setting.scale.peer(FULL_SINGLE, setting.size)
    return [
        Peer("plain sqlite3, the same record batches, a commit each", batched, targets.SQLITE_RAW),
        Peer("plain sqlite3, INSERT and commit one by one", single, targets.SQLITE_ONE_BY_ONE),
    ]


@dataclass(frozen=True, slots=True)
class InsertBatches:
    path: str
    messages: int
    size: int
    batch_messages: int

    async def run(self, gate: Gate) -> Span:
        blob = encode([Entry(value) for value in payloads(self.batch_messages, self.size)], now_ms=wall_clock_ms())
        with closing(_connect(self.path)) as connection:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "INSERT INTO batch (last_id, count, blob) VALUES (?, ?, ?)",
                    (watch.messages + self.batch_messages, self.batch_messages, blob),
                )
                connection.execute("COMMIT")
                watch.count(self.batch_messages)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class InsertOnes:
    path: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        (value,) = payloads(1, self.size)
        with closing(_connect(self.path)) as connection:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                connection.execute("INSERT INTO message (body) VALUES (?)", (value,))
                watch.count(1)
            return watch.stop()


def _connect(path: str) -> sqlite3.Connection:
    # Without the driver's own transactions each statement outside of BEGIN and COMMIT commits itself.
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE batch (last_id INTEGER PRIMARY KEY, count INTEGER, blob BLOB)")
    connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB)")
    return connection
