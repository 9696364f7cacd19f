"""Redis: what redis-benchmark reaches, and Streams through redis-py in pipelines of 100."""

import csv
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis
import redis.asyncio

from bench import targets
from bench.latency import Pace, latency_of
from bench.messages import Stamper, age_ms, payloads
from bench.peers.peer import Peer, RoundTrip, Setting
from bench.places import RedisPlace
from bench.processes import Crew, Gate, Job
from bench.timing import Span, Stopwatch, rate_of_both
from tests.services.process import find_program

HUNDRED: Final = 100
STREAM: Final = "bench-peer"
GROUP: Final = "group"
BLOCK_MS: Final = 1000
FULL_MESSAGES: Final = 150_000


def peers(place: RedisPlace, setting: Setting) -> list[Peer]:
    messages, size, crew = setting.scale.peer(FULL_MESSAGES, setting.size), setting.size, setting.crew
    add, acknowledge = AddHundredsAsync(place.url, messages, size), AcknowledgeHundredsAsync(place.url, messages)
    return [
        Peer(
            "redis-py sync, Streams in pipelines of 100, acknowledged",
            lambda: streams_in_hundreds(place, crew, messages, size),
            targets.REDIS_STREAMS,
        ),
        Peer(
            "redis-py asyncio, Streams in pipelines of 100, acknowledged",
            lambda: _both(place, crew, add, acknowledge),
            targets.REDIS_STREAMS,
        ),
        Peer(
            "redis-benchmark -P 100 XADD",
            lambda: redis_benchmark(place, setting.scale.peer(1_000_000, size, at_least=100_000), size),
            targets.REDIS_RAW,
        ),
    ]


def streams_in_hundreds(place: RedisPlace, crew: Crew, messages: int, size: int) -> float:
    """Return what Streams do per second with a consumer group, through redis-py's blocking client."""
    return _both(place, crew, AddHundreds(place.url, messages, size), AcknowledgeHundreds(place.url, messages))


def _both(place: RedisPlace, crew: Crew, producer: Job[Span], consumer: Job[Span]) -> float:
    _prepare(place)
    rate = rate_of_both(*crew.at_once(place.url, producer, consumer))
    _forget(place)
    return rate


def round_trip(place: RedisPlace, setting: Setting) -> RoundTrip:
    pace = setting.scale.quiet
    sender, reader = AddStamps(place.url, setting.size, pace), ReadStamps(place.url, pace)
    return RoundTrip(
        "XADD to a blocked XREAD, redis-py",
        lambda: latency_of(setting.crew, place.url, sender, reader),
        targets.QUIET_ROUND_TRIP,
    )


@dataclass(frozen=True, slots=True)
class AddHundreds:
    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        values = payloads(HUNDRED, self.size)
        with redis.Redis.from_url(self.url) as client:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                pipeline = client.pipeline(transaction=False)
                for value in values:
                    pipeline.xadd(STREAM, {"d": value})
                pipeline.execute()
                watch.count(HUNDRED)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class AcknowledgeHundreds:
    url: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        with redis.Redis.from_url(self.url) as client:
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                answer: Any = client.xreadgroup(GROUP, "consumer", {STREAM: ">"}, count=HUNDRED, block=BLOCK_MS)
                ids = _ids(answer)
                if ids:
                    client.xack(STREAM, GROUP, *ids)
                    watch.count(len(ids))
            return watch.stop()


@dataclass(frozen=True, slots=True)
class AddHundredsAsync:
    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        values = payloads(HUNDRED, self.size)
        async with redis.asyncio.Redis.from_url(self.url) as client:
            await client.ping()
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                pipeline = client.pipeline(transaction=False)
                for value in values:
                    pipeline.xadd(STREAM, {"d": value})
                await pipeline.execute()
                watch.count(HUNDRED)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class AcknowledgeHundredsAsync:
    url: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        async with redis.asyncio.Redis.from_url(self.url) as client:
            await client.ping()
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                answer: Any = await client.xreadgroup(GROUP, "consumer", {STREAM: ">"}, count=HUNDRED, block=BLOCK_MS)
                ids = _ids(answer)
                if ids:
                    await client.xack(STREAM, GROUP, *ids)
                    watch.count(len(ids))
            return watch.stop()


@dataclass(frozen=True, slots=True)
class AddStamps:
    url: str
    size: int
    pace: Pace

    async def run(self, gate: Gate) -> None:
        stamper = Stamper(self.size)
        with redis.Redis.from_url(self.url) as client:
            client.delete(STREAM)
            await gate.passed()
            for _ in range(self.pace.count):
                time.sleep(self.pace.pause_seconds)  # noqa: ASYNC251 - nothing else runs in this process
                client.xadd(STREAM, {"d": stamper.payload()})
            client.delete(STREAM)


@dataclass(frozen=True, slots=True)
class ReadStamps:
    url: str
    pace: Pace

    async def run(self, gate: Gate) -> list[float]:
        ages: list[float] = []
        last_id: bytes | str = "0"
        with redis.Redis.from_url(self.url) as client:
            client.ping()
            await gate.passed()
            while len(ages) < self.pace.count:
                answer: Any = client.xread({STREAM: last_id}, count=HUNDRED, block=BLOCK_MS)
                now_ns = time.monotonic_ns()
                entries = _entries(answer)
                ages += [age_ms(fields[b"d"], now_ns) for _, fields in entries]
                if entries:
                    last_id = entries[-1][0]
        return ages


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream that was read, in either shape that redis-py gives them."""
    if not answer:
        return []
    if isinstance(answer, dict):
        (pages,) = answer.values()
        return [entry for page in pages for entry in page] if pages and isinstance(pages[0], list) else list(pages)
    return list(answer[0][1])


def _ids(answer: Any) -> Sequence[bytes]:
    return [entry_id for entry_id, _ in _entries(answer)]


def redis_benchmark(place: RedisPlace, messages: int, size: int) -> float:
    program = find_program("redis-benchmark", "redis-tools")
    amount = ["-p", str(place.server.port), "-n", str(messages), "-P", str(HUNDRED), "--csv"]
    command = [program, *amount, "XADD", STREAM, "*", "d", "x" * size]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    _forget(place)
    header, figures = csv.reader(line for line in done.stdout.splitlines() if line.startswith('"'))
    return float(figures[header.index("rps")])


def _prepare(place: RedisPlace) -> None:
    with place.server.client() as client:
        client.delete(STREAM)
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)


def _forget(place: RedisPlace) -> None:
    with place.server.client() as client:
        client.delete(STREAM)
