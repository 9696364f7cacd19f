"""PostgreSQL: COPY as the ceiling, and a table as a queue with SKIP LOCKED, through psycopg."""

import time
from dataclasses import dataclass
from typing import Final, LiteralString

import psycopg

from bench import targets
from bench.latency import Latency, Pace, latency_of
from bench.messages import Stamper, age_ms, payloads
from bench.peers.peer import Peer, RoundTrip, Setting
from bench.places import PostgresPlace
from bench.processes import Gate
from bench.timing import Span, Stopwatch, rate_of_both

THOUSAND: Final = 1000
IDLE_SECONDS: Final = 0.001
"""How long a consumer that found nothing waits before it looks again."""

_INSERT_ONE: Final = "INSERT INTO bench_queue (body) VALUES (%s)"
_INSERT_MANY: Final = "INSERT INTO bench_queue (body) SELECT unnest(%s::bytea[])"
_TAKE: Final = """
    DELETE FROM bench_queue WHERE id IN
        (SELECT id FROM bench_queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s)
    RETURNING body
"""
_INSERT_AND_NOTIFY: Final = """
    WITH inserted AS (INSERT INTO bench_queue (body) VALUES (%s)) SELECT pg_notify('bench', '')
"""


def peers(place: PostgresPlace, setting: Setting) -> list[Peer]:
    scale, size = setting.scale, setting.size

    def queue(full: int, at_once: int) -> float:
        _prepare(place)
        messages = scale.peer(full, size)
        producer, consumer = Insert(place.url, messages, size, at_once), Take(place.url, messages, at_once)
        return rate_of_both(*setting.crew.at_once(place.url, producer, consumer))

    def alone(insert: "type[Copy | ExecuteMany]", full: int) -> float:
        _prepare(place)
        return setting.crew.alone(insert(place.url, scale.peer(full, size), size)).rate

    return [
        Peer(
            "INSERT one by one, SKIP LOCKED delete one by one",
            lambda: queue(2_000, 1),
            targets.POSTGRES_ONE_BY_ONE,
        ),
        Peer("INSERT unnest of 100, SKIP LOCKED delete of 100", lambda: queue(80_000, 100), targets.POSTGRES_HUNDREDS),
        Peer("COPY binary of 1000 rows, insert only", lambda: alone(Copy, 200_000)),
        Peer("executemany of 1000 rows, insert only", lambda: alone(ExecuteMany, 40_000)),
    ]


def round_trip(place: PostgresPlace, setting: Setting) -> RoundTrip:
    pace = setting.scale.quiet
    sender, reader = NotifyStamps(place.url, setting.size, pace), SelectStamps(place.url, pace)

    def measure() -> Latency:
        _prepare(place)
        return latency_of(setting.crew, place.url, sender, reader)

    return RoundTrip("INSERT and NOTIFY to LISTEN and SELECT, psycopg", measure, targets.QUIET_ROUND_TRIP)


@dataclass(frozen=True, slots=True)
class Insert:
    url: str
    messages: int
    size: int
    at_once: int

    async def run(self, gate: Gate) -> Span:
        values = payloads(self.at_once, self.size)
        statement: LiteralString = _INSERT_ONE if self.at_once == 1 else _INSERT_MANY
        argument = values[0] if self.at_once == 1 else values
        with psycopg.connect(self.url, autocommit=True) as connection:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                connection.execute(statement, (argument,), binary=True)
                watch.count(self.at_once)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Take:
    url: str
    messages: int
    at_once: int

    async def run(self, gate: Gate) -> Span:
        with psycopg.connect(self.url, autocommit=True) as connection:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                taken = connection.execute(_TAKE, (self.at_once,), binary=True).fetchall()
                if taken:
                    watch.count(len(taken))
                else:
                    time.sleep(IDLE_SECONDS)  # noqa: ASYNC251 - nothing else runs in this process
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Copy:
    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        values = payloads(THOUSAND, self.size)
        with psycopg.connect(self.url, autocommit=True) as connection:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                with connection.cursor().copy("COPY bench_queue (body) FROM STDIN (FORMAT BINARY)") as copy:
                    copy.set_types(["bytea"])
                    for value in values:
                        copy.write_row((value,))
                watch.count(THOUSAND)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class ExecuteMany:
    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        rows = [(value,) for value in payloads(THOUSAND, self.size)]
        with psycopg.connect(self.url) as connection:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                connection.cursor(binary=True).executemany(_INSERT_ONE, rows)
                connection.commit()
                watch.count(THOUSAND)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class NotifyStamps:
    url: str
    size: int
    pace: Pace

    async def run(self, gate: Gate) -> None:
        stamper = Stamper(self.size)
        with psycopg.connect(self.url, autocommit=True) as connection:
            await gate.passed()
            for _ in range(self.pace.count):
                time.sleep(self.pace.pause_seconds)  # noqa: ASYNC251 - nothing else runs in this process
                connection.execute(_INSERT_AND_NOTIFY, (stamper.payload(),), binary=True)


@dataclass(frozen=True, slots=True)
class SelectStamps:
    url: str
    pace: Pace

    async def run(self, gate: Gate) -> list[float]:
        ages: list[float] = []
        last_id = 0
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("LISTEN bench")
            await gate.passed()
            while len(ages) < self.pace.count:
                for _ in connection.notifies(timeout=1.0, stop_after=1):
                    pass
                rows = connection.execute(
                    "SELECT id, body FROM bench_queue WHERE id > %s ORDER BY id", (last_id,), binary=True
                ).fetchall()
                now_ns = time.monotonic_ns()
                ages += [age_ms(body, now_ns) for _, body in rows]
                if rows:
                    last_id = rows[-1][0]
        return ages


def _prepare(place: PostgresPlace) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bench_queue")
        connection.execute("CREATE TABLE bench_queue (id BIGSERIAL PRIMARY KEY, body BYTEA NOT NULL)")
