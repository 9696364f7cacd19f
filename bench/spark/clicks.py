"""Messages as they are in life: JSON of a hundred bytes, each another one, of which some parts come again and again."""

import asyncio
import random
from collections.abc import Iterator

from onebus import Bus
from onebus.log.batch import Kind, encode_values
from onebus.objects.topics.names import log_of

SIZE = 100
BATCH = 1000
"""So many messages are in a record batch, as with a producer that is in a hurry."""
LONG_BATCH = 10_000

_PAGES = [f"/books/{number}" for number in range(500)]
_ACTIONS = ("view", "view", "view", "like", "cart", "pay")


def clicks(count: int, seed: int = 1) -> Iterator[bytes]:
    """Yield messages of exactly `SIZE` bytes."""
    chance = random.Random(seed)
    for number in range(count):
        text = (
            f'{{"id":{number},"visitor":"{chance.getrandbits(48):012x}","page":"{chance.choice(_PAGES)}",'
            f'"action":"{chance.choice(_ACTIONS)}","ms":{chance.randrange(10_000)}'
        )
        yield f"{text}{' ' * (SIZE - len(text) - 1)}}}".encode()


def fill(url: str, topic: str, count: int, partitions: int) -> None:
    """Create a topic with so many clicks, evenly spread."""
    asyncio.run(_fill(url, topic, count, partitions))


async def _fill(url: str, topic: str, count: int, partitions: int) -> None:
    async with Bus(url) as bus:
        await bus.topic(topic, partitions=partitions).create()
        messages = clicks(count)
        number = 0
        while values := [value for _, value in zip(range(BATCH), messages, strict=False)]:
            blob = encode_values(values, kind=Kind.BYTES, now_ms=1_772_366_400_000 + number)
            await bus.link.store.append(log_of(topic, number % partitions), blob)
            number += 1


def fill_long(url: str, topic: str, count: int) -> None:
    """Create a topic with very many messages, each of one byte."""
    asyncio.run(_fill_long(url, topic, count))


async def _fill_long(url: str, topic: str, count: int) -> None:
    blob = encode_values([b"x"] * LONG_BATCH, kind=Kind.BYTES, now_ms=1_772_366_400_000, compress=True)
    async with Bus(url) as bus:
        await bus.topic(topic, partitions=1).create()
        for start in range(0, count, LONG_BATCH * 100):
            batches = min((count - start) // LONG_BATCH, 100)
            await asyncio.gather(*(bus.link.store.append(log_of(topic, 0), blob) for _ in range(batches)))


def forget(url: str, topic: str) -> None:
    """Delete a topic."""
    asyncio.run(_forget(url, topic))


async def _forget(url: str, topic: str) -> None:
    async with Bus(url) as bus:
        await bus.topic(topic).delete()
