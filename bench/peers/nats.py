"""NATS JetStream with files, through nats-py: published in two hundreds, fetched in hundreds, acknowledged."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from bench.messages import payloads
from bench.processes import Gate
from bench.timing import Span, Stopwatch
from tests.services.port import is_listened_on
from tests.services.process import Server, find_program

STREAM: Final = "bench"
SUBJECT: Final = "bench.messages"
CONSUMER: Final = "group"
HUNDRED: Final = 100
IN_FLIGHT: Final = 200


class NatsServer(Server):
    """nats-server, which keeps streams in files."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        program = find_program("nats-server", "nats-server")
        return [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "streams")]

    def is_ready(self) -> bool:
        return is_listened_on(self.port)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Makes a stream and its consumer, which may acknowledge the last message for all before it."""

    url: str

    async def run(self, gate: Gate) -> None:
        client = await nats.connect(self.url)
        stream = client.jetstream()
        await stream.add_stream(StreamConfig(STREAM, subjects=[SUBJECT], storage=StorageType.FILE))
        config = ConsumerConfig(durable_name=CONSUMER, ack_policy=AckPolicy.ALL, max_ack_pending=100 * HUNDRED)
        await stream.add_consumer(STREAM, config)
        await gate.passed()
        await client.close()


@dataclass(frozen=True, slots=True)
class Publish:
    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        values = payloads(IN_FLIGHT, self.size)
        client = await nats.connect(self.url)
        stream = client.jetstream()
        await gate.passed()
        watch = Stopwatch(self.messages)
        while watch.messages < self.messages:
            # Quicker than `publish_async`, which was tried too.
            await asyncio.gather(*(stream.publish(SUBJECT, value) for value in values))
            watch.count(IN_FLIGHT)
        span = watch.stop()
        await client.close()
        return span


@dataclass(frozen=True, slots=True)
class Fetch:
    url: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        client = await nats.connect(self.url)
        subscription = await client.jetstream().pull_subscribe(SUBJECT, CONSUMER, STREAM)
        await gate.passed()
        watch = Stopwatch(self.messages)
        while watch.messages < self.messages:
            try:
                found = await subscription.fetch(HUNDRED, timeout=1)
            except nats.errors.TimeoutError:
                continue
            await found[-1].ack()
            watch.count(len(found))
        span = watch.stop()
        await client.close()
        return span
