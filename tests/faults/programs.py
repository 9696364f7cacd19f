"""Small programs that tests run as processes of their own, to kill, freeze and outlive them.

Each prints one line per thing that happened, so that the test knows what was acknowledged.
"""

import asyncio
import logging
import os
import signal
import sys

import uvicorn

from onebus import Bus
from onebus.errors import PartitionLost, StoreUnavailable
from onebus.http import Consumer, HttpMessage
from onebus.stores import create_store
from onebus.stores.base import StoreOptions
from onebus.stores.following import claimant, follow
from onebus.web import app
from onebus.web.queues.settings import QueueSettings
from onebus.zmq import Consumer as BrokerConsumer
from tests.messages import batch_of, claimed_ids, texts_of

BATCH_SIZE = 50
APPENDERS = 4
MAX_ATTEMPTS = 5


def say(*words: object) -> None:
    print(*words, flush=True)


async def append_for_ever(url: str, log: str) -> None:
    """Append mirrored batches as fast as the store allows; print the first id of each that was acknowledged."""
    async with create_store(url, StoreOptions(deadline_seconds=20)) as store:
        say("ready")

        async def appender(name: int) -> None:
            number = 0
            while True:
                number += 1
                batch = batch_of(*(f"{name}:{number}:{part}" for part in range(BATCH_SIZE)))
                try:
                    first_id = await store.append(f"{log}|/channel", batch, mirror=f"{log}|")
                except StoreUnavailable:
                    say("failed", f"{name}:{number}")
                else:
                    say("stored", f"{name}:{number}", first_id)

        await asyncio.gather(*(appender(name) for name in range(APPENDERS)))


async def hold_a_lease(url: str, log: str) -> None:
    """Claim everything with a lease of two seconds, and then do nothing."""
    async with create_store(url) as store:
        claim = await store.claim(log, limit=1000, lease_seconds=2, owner="doomed")
        say("claimed", *claimed_ids(claim))
        await asyncio.Event().wait()


async def answer_on_a_channel(url: str, log: str) -> None:
    """Answer each question of a channel, those asked before included, with our name and the question."""
    async with Bus(url) as bus, bus.subscribe(f"/{log}/questions", last_id=0) as questions:
        say("ready")
        async for question in questions:
            await bus.publish(f"/{log}/answers", [str(os.getpid()), question.data])


async def consume_for_ever(url: str, log: str) -> None:
    """Claim and settle; print the ids of each claim."""
    async with create_store(url, StoreOptions(deadline_seconds=20)) as store, claimant(store, log, limit=500) as one:
        say("ready")
        while True:
            claim = await one.next()
            one.done(claim.leases)
            say("claimed", *claimed_ids(claim))


async def follow_for_ever(url: str, log: str) -> None:
    """Print the texts that a follower sees."""
    async with create_store(url) as store:
        say("ready")
        after = 0
        async for found in follow(store, log, after=0):
            say("seen", *texts_of(found, after=after))
            after = found.batches[-1].last_id


async def open_and_close(url: str, log: str) -> None:
    """Open a store that may not exist yet, use it once, and print the id."""
    async with create_store(url) as store:
        say("appended", await store.append(log, batch_of("hello")))


async def consume_and_hang(url: str, name: str) -> None:
    """Take five messages with a lease of one second, acknowledge three, and hang."""
    async with Bus(url) as bus, bus.queue(name) as queue:
        async for message in queue.consume(lease=1, prefetch=5):
            if message.id <= 3:
                await queue.ack(message.id)
            if message.id == 5:
                say("hanging")
                # Nothing in this process goes on, not even a heartbeat.
                signal.pause()


async def push_delayed(url: str, name: str) -> None:
    """Push three messages that are due soon, and hang."""
    async with Bus(url) as bus, bus.queue(name) as queue:
        await queue.push("soon", delay=0.6)
        await queue.push("sooner", delay=0.4)
        await queue.push("soonest", delay=0.2)
        say("pushed")
        await asyncio.Event().wait()


async def serve_queues(url: str, port: str) -> None:
    """Serve the queues of a bus over HTTP; who holds a message for two seconds loses it."""
    settings = QueueSettings(pending_timeout=2, max_attempts=MAX_ATTEMPTS)
    config = uvicorn.Config(app(Bus(url), queues=settings), port=int(port), lifespan="on", log_level="error")
    await uvicorn.Server(config).serve()


async def work_over_http(url: str, name: str) -> None:
    """Handle the messages of a queue, except those that are poison; print each, and how often it was handed out."""

    async def handle(message: HttpMessage) -> None:
        say("handled", message.id, message.attempts)
        if message.payload == "poison":
            raise ValueError("poison")

    logging.disable()
    async with Consumer(url, queue=name) as consumer:
        await consumer.work(handle, concurrency=32, timeout=2, retry_delay=0.05)


MEMBER_SECONDS = 0.04
"""How long a member works on a batch: so long that it mostly does when something happens to it."""


SLOW_MEMBER_SECONDS = 1.0
"""How long a slow member works on a batch: so long that it certainly does when something happens to it."""


async def be_a_member(url: str, topic: str) -> None:
    """Read a topic as one of a group; print what is delivered, what is committed, and what is lost. SIGTERM leaves."""
    await _be_a_member(url, topic, MEMBER_SECONDS)


async def be_a_slow_member(url: str, topic: str) -> None:
    await _be_a_member(url, topic, SLOW_MEMBER_SECONDS)


async def _be_a_member(url: str, topic: str, seconds: float) -> None:
    logging.disable()
    async with Bus(url) as bus:
        consumer = bus.consume(topic, group="group", lease_seconds=2, max_messages=20, auto_commit=False)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        say("ready")
        async for batch in consumer:
            place = (batch.partition, batch.fence, batch.messages[0].id, batch.last_id)
            say("got", *place)
            await asyncio.sleep(seconds)
            try:
                await batch.commit()
            except PartitionLost:
                say("lost", *place)
            else:
                say("committed", *place)
    say("left")


async def consume_from_broker(management: str, name: str) -> None:
    """Consume a topic of a broker in a group, and print what comes."""
    address, group = name.split("|")

    def got(_: str, partition: int, numbers: list[int]) -> None:
        for number in numbers:
            say("got", partition, number)

    logging.disable()
    async with BrokerConsumer(management, address) as consumer:
        consumer.on("message", got)
        consumer.on("ready", lambda told: say("ready", *told["partitions"]))
        await consumer.join("t", group)
        await asyncio.Event().wait()


PROGRAMS = {
    program.__name__: program
    for program in (
        append_for_ever,
        hold_a_lease,
        answer_on_a_channel,
        consume_for_ever,
        follow_for_ever,
        open_and_close,
        consume_and_hang,
        push_delayed,
        serve_queues,
        work_over_http,
        be_a_member,
        be_a_slow_member,
        consume_from_broker,
    )
}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
