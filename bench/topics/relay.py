"""From a publisher through something in the middle to a consumer: our broker, or a proxy that does nothing else."""

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import socketio
import zmq

from bench.processes import Gate
from bench.timing import Span, Stopwatch
from onebus.zmq import Consumer, Publisher
from tests.services.port import free_port, is_listened_on
from tests.services.process import Server

TOPIC: Final = "bench"
GROUP: Final = "group"
PARTITION: Final = 3
ARRAY_MESSAGES: Final = 100
IN_FLIGHT: Final = 200
"""Arrays that wait for their receipt."""
ROOM: Final = f"{TOPIC}:{PARTITION}"
_PROBE: Final = b"[]"
_PROBE_MS: Final = 50


def array_of(size: int) -> list[str]:
    """Return messages that take so many bytes each in JSON."""
    return [f"{number:03}".ljust(size - 2, "x") for number in range(ARRAY_MESSAGES)]


class Proxy(Server):
    """Takes frames from publishers and hands them to whoever has subscribed, and does nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.publishers = f"tcp://127.0.0.1:{self.port}"
        self.consumers = f"tcp://127.0.0.1:{free_port()}"

    def command(self) -> Sequence[str]:
        return [sys.executable, str(Path(__file__).with_name("proxy.py")), ROOM, self.publishers, self.consumers]

    def is_ready(self) -> bool:
        return is_listened_on(self.port)


@dataclass(frozen=True, slots=True)
class Push:
    """Pushes frames into a proxy."""

    address: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        published = {"topic": TOPIC, "partition": PARTITION, "payload": array_of(self.size)}
        frame = msgspec.json.encode(published)
        with zmq.Context() as context, context.socket(zmq.PUSH) as push:
            push.connect(self.address)
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                push.send(frame)
                watch.count(ARRAY_MESSAGES)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Listen:
    """Receives what a proxy hands on."""

    publishers: str
    consumers: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        with zmq.Context() as context, context.socket(zmq.SUB) as sub, context.socket(zmq.PUSH) as push:
            sub.connect(self.consumers)
            sub.subscribe(ROOM)
            push.connect(self.publishers)
            push.send(_PROBE)
            while not sub.poll(_PROBE_MS):
                push.send(_PROBE)
            while sub.poll(_PROBE_MS):
                sub.recv_multipart()
            await gate.passed()
            watch = Stopwatch(self.messages)
            while watch.messages < self.messages:
                sub.recv_multipart()
                watch.count(ARRAY_MESSAGES)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class ListenInRooms:
    """Receives what a broker sends to plain consumers: a bare socket, and the management connection beside it."""

    management: str
    consumers: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        is_ready = asyncio.Event()
        io = socketio.AsyncClient(reconnection=False)
        with zmq.Context() as context, context.socket(zmq.SUB) as sub:

            async def rebalanced(told: dict[str, Any]) -> None:
                for partition in told["partitions"]:
                    sub.subscribe(f"{TOPIC}:{partition}")
                await io.emit("ready", told)
                is_ready.set()

            io.on("rebalance", rebalanced)
            sub.connect(self.consumers)
            await io.connect(self.management, transports=["websocket"])
            await io.emit("join", {"topic": TOPIC, "group": GROUP})
            await is_ready.wait()
            await gate.passed()
            span = await asyncio.to_thread(self._listen, sub)
            await io.disconnect()
            return span

    def _listen(self, sub: "zmq.Socket[bytes]") -> Span:
        watch = Stopwatch(self.messages)
        while watch.messages < self.messages:
            _, payload = sub.recv_multipart()
            # Arrays that came close to each other are one by now; between two messages there is always this.
            watch.count(payload.count(b'","') + 1)
        return watch.stop()


@dataclass(frozen=True, slots=True)
class Send:
    """Publishes arrays to a broker, each with a receipt that it is stored."""

    address: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        array = array_of(self.size)
        async with Publisher(self.address) as publisher:
            await publisher.send(TOPIC, PARTITION, [])
            await gate.passed()
            watch = Stopwatch(self.messages)
            async with asyncio.TaskGroup() as group:
                sending: deque[asyncio.Task[None]] = deque()
                while watch.messages < self.messages:
                    sending.append(group.create_task(publisher.send(TOPIC, PARTITION, array)))
                    watch.count(ARRAY_MESSAGES)
                    if len(sending) >= IN_FLIGHT:
                        await sending.popleft()
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Receive:
    """Consumes from a broker, and acknowledges."""

    management: str
    consumers: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        is_ready, is_done = asyncio.Event(), asyncio.Event()
        watch = Stopwatch(self.messages)

        def got(_topic: str, _partition: int, messages: list[Any]) -> None:
            watch.count(len(messages))
            if watch.messages >= self.messages:
                is_done.set()

        async with Consumer(self.management, self.consumers) as consumer:
            consumer.on("ready", lambda _: is_ready.set())
            consumer.on("message", got)
            await consumer.join(TOPIC, GROUP)
            await is_ready.wait()
            await gate.passed()
            await is_done.wait()
            return watch.stop()
