"""MariaDB: a table as a queue with SKIP LOCKED, through PyMySQL."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import pymysql

from bench import targets
from bench.latency import Latency, Pace, summary
from bench.messages import Stamper, age_ms, payloads
from bench.peers.peer import Peer, RoundTrip, Setting
from bench.places import MariaDbPlace
from bench.processes import Gate
from bench.timing import Span, Stopwatch, rate_of_both

IDLE_SECONDS: Final = 0.001

_INSERT: Final = "INSERT INTO bench_queue (body) VALUES (%s)"
_FIND: Final = "SELECT id, body FROM bench_queue ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
_DELETE: Final = "DELETE FROM bench_queue WHERE id IN %s"


def peers(place: MariaDbPlace, setting: Setting) -> list[Peer]:
    def queue(full: int, at_once: int) -> float:
        _prepare(place)
        messages = setting.scale.peer(full, setting.size)
        producer, consumer = Insert(place.url, messages, setting.size, at_once), Take(place.url, messages, at_once)
        return rate_of_both(*setting.crew.at_once(place.url, producer, consumer))

    return [
        Peer("INSERT one by one, SKIP LOCKED delete one by one", lambda: queue(2_000, 1)),
        Peer("INSERT of 100 rows, SKIP LOCKED delete of 100", lambda: queue(50_000, 100)),
    ]


def round_trip(place: MariaDbPlace, setting: Setting) -> RoundTrip:
    def measure() -> Latency:
        _prepare(place)
        return summary(setting.crew.alone(InsertAndSelect(place.url, setting.size, setting.scale.quiet)))

    return RoundTrip("INSERT and commit, then SELECT, PyMySQL", measure, targets.QUIET_ROUND_TRIP)


@dataclass(frozen=True, slots=True)
class Insert:
    url: str
    messages: int
    size: int
    at_once: int

    async def run(self, gate: Gate) -> Span:
        rows = [(value,) for value in payloads(self.at_once, self.size)]
        with closing(_connect(self.url)) as connection, connection.cursor() as cursor:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                # PyMySQL makes one INSERT with many rows of this.
                cursor.executemany(_INSERT, rows)
                connection.commit()
                watch.count(self.at_once)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Take:
    url: str
    messages: int
    at_once: int

    async def run(self, gate: Gate) -> Span:
        with closing(_connect(self.url)) as connection, connection.cursor() as cursor:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                cursor.execute(_FIND, (self.at_once,))
                ids = [row_id for row_id, _ in cursor.fetchall()]
                if ids:
                    cursor.execute(_DELETE, (ids,))
                connection.commit()
                if ids:
                    watch.count(len(ids))
                else:
                    time.sleep(IDLE_SECONDS)  # noqa: ASYNC251 - nothing else runs in this process
            return watch.stop()


@dataclass(frozen=True, slots=True)
class InsertAndSelect:
    url: str
    size: int
    pace: Pace

    async def run(self, gate: Gate) -> list[float]:
        ages: list[float] = []
        stamper = Stamper(self.size)
        with closing(_connect(self.url)) as connection, connection.cursor() as cursor:
            await gate.passed()
            for _ in range(self.pace.count):
                time.sleep(self.pace.pause_seconds)  # noqa: ASYNC251 - nothing else runs in this process
                cursor.execute(_INSERT, (stamper.payload(),))
                connection.commit()
                cursor.execute("SELECT body FROM bench_queue ORDER BY id DESC LIMIT 1")
                ((body,),) = cursor.fetchall()
                ages.append(age_ms(body, time.monotonic_ns()))
        return ages


def _connect(url: str) -> Any:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.lstrip("/"),
        # Gap locks, which the default level takes, would let producer and consumer run into deadlocks.
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


def _prepare(place: MariaDbPlace) -> None:
    with closing(_connect(place.url)) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bench_queue")
        cursor.execute(
            "CREATE TABLE bench_queue (id BIGINT AUTO_INCREMENT PRIMARY KEY, body BLOB NOT NULL) ENGINE=InnoDB"
        )
