"""The suite for the web door: what it does beside servers that do nothing else, in the same run."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import msgspec
import uvloop

from bench import targets
from bench.latency import percentiles
from bench.log import crew_of
from bench.peers.redis import redis_benchmark
from bench.places import RedisPlace, SqlitePlace, opened
from bench.progress import Progress
from bench.report import MILLISECONDS, RATE, Report, comparison, measurement
from bench.timing import rate_of_both, resident_bytes
from bench.web.bare import ANSWER_PATH, FRAME_PATH
from bench.web.crowd import Crowd
from bench.web.exchange import Script, ask, perform, request
from bench.web.feeds import Follow, Publish
from bench.web.servers import bare_fan_out, empty_app, onebus
from onebus import Bus
from onebus.log.batch import Entry, Kind
from onebus.web.queues.settings import QueueSettings
from tests.services.process import Server

T = TypeVar("T")

SIZE = 100
CONNECTIONS = 100
WORKERS = 10
FEW_WAITING = 10
REQUESTS = "requests/s"
CYCLES = "cycles/s"
KILOBYTES = "KB"

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int = 10
    seconds: float = 5.0
    clients: int = 1000
    many_clients: int = 10_000
    messages: int = 500_000
    waiting: int = 1_000_000


QUICK = Plan(rounds=3, seconds=1.0, clients=200, many_clients=1000, messages=50_000, waiting=20_000)


@dataclass(frozen=True, slots=True)
class WebSuite:
    """Runs one scenario after the other, each with servers of its own."""

    plan: Plan
    report: Report
    progress: Progress

    @contextmanager
    def opened(self) -> Iterator[dict[str, Callable[[], None]]]:
        """Yield what measures each scenario."""
        yield {
            "feeds on Redis": self.feeds,
            "streaming": lambda: self.fan_out(STREAMING),
            "long-polling": lambda: self.fan_out(LONG_POLLING),
            "many held clients": self.many_held,
            "publishing over HTTP": self.publishes,
            "the work queue": self.work_queue,
            "a long work queue": self.long_work_queue,
        }

    def feeds(self) -> None:
        self.progress.step("feeds: publishing to one subscriber on Redis")
        with opened(RedisPlace) as place, crew_of(place) as crew:
            assert isinstance(place, RedisPlace)
            ours = []
            for _ in range(3):
                jobs = Publish(place.url, self.plan.messages, SIZE), Follow(place.url, self.plan.messages)
                with place.server.client() as client:
                    client.flushall()
                ours.append(rate_of_both(*crew.at_once(place.url, *jobs)))
            raw = redis_benchmark(place, self.plan.messages, SIZE)
        own = measurement("redis", SIZE, "published to one subscriber", median(ours), RATE, target=targets.FEED_RATE)
        self.report.add(own)
        self.report.add(comparison(own, "redis-benchmark -P 100 XADD", raw, target=targets.FEED_RAW))

    def fan_out(self, transport: "Transport") -> None:
        clients = self.plan.clients
        self.progress.step(f"fan-out to {clients} clients, {transport.name}")
        with opened(SqlitePlace) as place, onebus(place.url) as server, bare_fan_out() as bare:
            ours, theirs = _run(_fan_out(transport, server, bare, clients, self.plan.rounds))
        what = f"one message to {clients} clients, {transport.name}: the last one"
        own = measurement("sqlite", SIZE, what, median(ours), MILLISECONDS, target=transport.target)
        self.report.add(own)
        self.report.add(comparison(own, "a bare asyncio server", median(theirs), target=targets.FAN_OUT_BARE))

    def many_held(self) -> None:
        clients = self.plan.many_clients
        self.progress.step(f"{clients} held clients")
        with opened(SqlitePlace) as place, onebus(place.url) as server:
            held = _run(_many_held(server, clients, self.plan.rounds))
        what = f"{clients} streaming clients"
        add = self.report.add
        add(
            measurement(
                "sqlite", SIZE, f"{what}: memory of each", held.bytes_each / 1024, KILOBYTES, target=targets.HELD_MEMORY
            )
        )
        add(measurement("sqlite", SIZE, f"{what}: one message, the last one", held.last_ms, MILLISECONDS))
        add(
            measurement(
                "sqlite",
                SIZE,
                f"{what}: /healthz p99 meanwhile",
                held.health_p99_ms,
                MILLISECONDS,
                target=targets.HELD_HEALTH,
            )
        )

    def publishes(self) -> None:
        self.progress.step("publishing over HTTP")
        body = msgspec.json.encode({"channel": "/bench", "data": "x" * SIZE})
        publish = request("POST", "/message-bus/broadcast", body)
        with opened(SqlitePlace) as place, onebus(place.url) as server, empty_app() as empty:
            ours, theirs = [], []
            for _ in range(3):
                theirs.append(_run(_requests(empty.port, publish, self.plan.seconds)))
                ours.append(_run(_requests(server.port, publish, self.plan.seconds)))
        own = measurement("sqlite", SIZE, "published over HTTP, durable", median(ours), REQUESTS)
        self.report.add(own)
        self.report.add(comparison(own, "an empty ASGI application", median(theirs), target=targets.HTTP_PUBLISH))

    def work_queue(self) -> None:
        self.progress.step(f"the work queue, {WORKERS} clients")
        new = request("POST", "/message/new", _payload())
        with opened(SqlitePlace) as place, onebus(place.url) as server, empty_app() as empty:
            ours, theirs = [], []
            for _ in range(3):
                theirs.append(_run(_requests(empty.port, new, self.plan.seconds)))
                ours.append(_run(_cycles(server.port, self.plan.seconds)))
        what = f"new, next and done over HTTP, durable, {WORKERS} clients"
        own = measurement("sqlite", SIZE, what, median(ours), CYCLES, target=targets.WORK_CYCLES)
        self.report.add(own)
        self.report.add(
            comparison(own, "requests of an empty ASGI application", median(theirs), target=targets.WORK_EMPTY)
        )

    def long_work_queue(self) -> None:
        waiting = self.plan.waiting
        with opened(SqlitePlace) as place:
            medians = []
            for count in (FEW_WAITING, waiting):
                url = place.separate_url()
                self.progress.step(f"next, with {count} messages waiting")
                _run(_fill(url, count))
                with onebus(url) as server:
                    medians.append(median(_run(_nexts(server.port, self.plan.rounds * 50))))
        few_ms, many_ms = medians
        own = measurement("sqlite", SIZE, f"next, with {waiting} messages waiting: median", many_ms, MILLISECONDS)
        self.report.add(own)
        self.report.add(comparison(own, f"with {FEW_WAITING} waiting", few_ms, target=targets.LONG_WORK_QUEUE))


@dataclass(frozen=True, slots=True)
class Transport:
    """How clients wait for messages."""

    name: str
    headers: str
    closes: bool
    target: targets.Target

    def answer(self, marker: str) -> bytes:
        """Return the bytes that a client of ours receives with a message."""
        message = {"global_id": 1, "message_id": 1, "channel": "/bench", "data": marker}
        array = json.dumps([message], separators=(",", ":")).encode()
        if self.closes:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: %d\r\n"
            return head % len(array) + b"cache-control: must-revalidate\r\nconnection: close\r\n\r\n" + array
        frame = array + b"\r\n|\r\n"
        return b"%x\r\n%b\r\n" % (len(frame), frame)

    def poll(self, number: int) -> bytes:
        """Ask for what is published from now on, as one of many clients."""
        return request("POST", f"/message-bus/bench{number}/poll", b"/bench=", FORM, self.headers)


STREAMING = Transport("streaming", "", False, targets.FAN_OUT_STREAMING)
LONG_POLLING = Transport("long-polling", "dont-chunk: true\r\n", True, targets.FAN_OUT_LONG_POLLING)


@dataclass(frozen=True, slots=True)
class Held:
    """What it costs to hold many clients."""

    bytes_each: float
    last_ms: float
    health_p99_ms: float


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _fan_out(
    transport: Transport, server: Server, bare: Server, clients: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Return for each round how many milliseconds the last client had to wait, at ours and at the bare server."""
    ours, theirs = Crowd(server.port, transport.poll), Crowd(bare.port, transport.poll)
    own_ms: list[float] = []
    bare_ms: list[float] = []
    for number in range(rounds + 1):
        if number == 0 or transport.closes:
            await _assemble(ours, clients, lambda: _held(server))
            arrived = theirs.expect(b"held", clients)
            await theirs.come(clients)
            await theirs.have(arrived)
        marker = f"round-{number}-".ljust(SIZE, "x")
        publish = request("POST", "/message-bus/broadcast", json.dumps({"channel": "/bench", "data": marker}).encode())
        own_ms.append(await _last_ms(ours, clients, marker, server, publish))
        answer = transport.answer(marker)
        path = ANSWER_PATH if transport.closes else FRAME_PATH
        bare_ms.append(await _last_ms(theirs, clients, marker, bare, request("POST", path, answer)))
        if transport.closes:
            await ours.go()
            await theirs.go()
    await ours.go()
    await theirs.go()
    # The first round warms up.
    return own_ms[1:], bare_ms[1:]


async def _assemble(crowd: Crowd, clients: int, held: Callable[[], Awaitable[int]]) -> None:
    await crowd.come(clients)
    while await held() < clients:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def _last_ms(crowd: Crowd, clients: int, marker: str, server: Server, publish: bytes) -> float:
    arrived = crowd.expect(marker.encode(), clients)
    began = time.perf_counter()
    await ask(server.port, publish)
    return (max(await crowd.have(arrived)) - began) * 1000


async def _held(server: Server) -> int:
    """Return how many clients a server of ours holds."""
    metrics = (await ask(server.port, request("GET", "/metrics"))).decode()
    lines = (line for line in metrics.splitlines() if line.startswith("onebus_held_clients{"))
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


async def _many_held(server: Server, clients: int, rounds: int) -> Held:
    await _held(server)
    before = resident_bytes(server.pid)
    crowd = Crowd(server.port, STREAMING.poll)
    await _assemble(crowd, clients, lambda: _held(server))
    bytes_each = (resident_bytes(server.pid) - before) / clients
    looking = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.web.health", str(server.port), stdout=PIPE, stdin=PIPE
    )
    lasts = []
    for number in range(rounds):
        marker = f"round-{number}-".ljust(SIZE, "x")
        body = json.dumps({"channel": "/bench", "data": marker}).encode()
        lasts.append(await _last_ms(crowd, clients, marker, server, request("POST", "/message-bus/broadcast", body)))
        await asyncio.sleep(1)
    printed, _ = await looking.communicate(b"enough")
    await crowd.go()
    return Held(bytes_each, median(lasts), percentiles(json.loads(printed)).p99_ms)


def _payload() -> bytes:
    return json.dumps({"payload": "x" * SIZE}).encode()


async def _cycles(port: int, seconds: float) -> float:
    """Return how many messages per second are pushed, taken and done, each by one of some clients."""
    finished = 0
    new, take = request("POST", "/message/new", _payload()), request("GET", "/message/next")
    ends_at = time.perf_counter() + seconds

    def script() -> Script:
        nonlocal finished
        while time.perf_counter() < ends_at:
            yield new
            taken = json.loads((yield take))
            done = json.loads((yield request("POST", f"/message/{taken['id']}/status/done")))
            assert done["status"] == "processed", done
            finished += 1

    await perform(port, [script() for _ in range(WORKERS)])
    return finished / seconds


async def _nexts(port: int, count: int) -> list[float]:
    """Return how many milliseconds it takes to be handed a message; as many wait afterwards as before."""
    times_ms: list[float] = []
    new, take = request("POST", "/message/new", _payload()), request("GET", "/message/next")

    def script() -> Script:
        for _ in range(count):
            yield new
            began = time.perf_counter()
            taken = json.loads((yield take))
            times_ms.append((time.perf_counter() - began) * 1000)
            yield request("POST", f"/message/{taken['id']}/status/done")

    await perform(port, [script()])
    return times_ms


async def _fill(url: str, count: int) -> None:
    """Push messages to the queue behind ``/message/next``, as its door does."""
    entries = [Entry(b"x" * SIZE, Kind.TEXT)] * 10_000
    async with Bus(url) as bus, bus.work_queue(QueueSettings().queue) as queue:
        for start in range(0, count, len(entries)):
            await queue.push_many(entries[: count - start])


async def _requests(port: int, one: bytes, seconds: float) -> float:
    """Return how many times per second a request is answered, sent again and again over many connections."""
    answered = 0
    ends_at = time.perf_counter() + seconds

    def script() -> Script:
        nonlocal answered
        while time.perf_counter() < ends_at:
            yield one
            answered += 1

    await perform(port, [script() for _ in range(CONNECTIONS)])
    return answered / seconds
