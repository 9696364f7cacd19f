"""A topic and two groups: one shares the work between its members, the other reads everything for itself.

Clicks of one visitor are in one partition, so their order is kept, whoever counts them. Run: python examples/topics.py
"""

import asyncio
import tempfile
from collections import Counter

from onebus import Bus

VISITORS = ("ann", "ben", "cleo")
CLICKS = 30


async def count(bus: Bus, counted: Counter[str], enough: asyncio.Event) -> None:
    """Be one of those who count; two of them never count the same click."""
    async with bus.consume("clicks", group="statistics") as consumer:
        stopping = asyncio.create_task(enough.wait())
        stopping.add_done_callback(lambda _: consumer.stop())
        async for batch in consumer:
            counted.update(message.data["visitor"] for message in batch)
            if counted.total() == CLICKS:
                enough.set()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Bus(f"sqlite:///{folder}/bus.db") as bus, Bus(f"sqlite:///{folder}/bus.db") as other_bus:
            clicks = bus.topic("clicks", partitions=4)
            for number in range(CLICKS):
                visitor = VISITORS[number % len(VISITORS)]
                await clicks.publish({"visitor": visitor, "page": number}, key=visitor)

            counted: Counter[str] = Counter()
            enough = asyncio.Event()
            await asyncio.gather(count(bus, counted, enough), count(other_bus, counted, enough))
            print("two members counted:", dict(sorted(counted.items())))

            pages: list[int] = []
            async with clicks.consume("pages of ann") as consumer:
                async for batch in consumer:
                    pages += [message.data["page"] for message in batch if message.key == b"ann"]
                    if len(pages) == CLICKS // len(VISITORS):
                        break
            print("ann's pages, in order:", pages)

            print("not counted:", sum(partition.lag for partition in await clicks.lag("statistics")))
            await clicks.seek("statistics", message_id=1)
            print("sent back to the beginning:", sum(partition.lag for partition in await clicks.lag("statistics")))


if __name__ == "__main__":
    asyncio.run(main())
