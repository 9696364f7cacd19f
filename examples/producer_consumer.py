"""A producer and a consumer on one queue.

python examples/producer_consumer.py                     in memory
python examples/producer_consumer.py sqlite:///bus.db    in a file; any store URL will do
"""

import asyncio
import sys

from onebus import Bus


async def produce(bus: Bus) -> None:
    async with bus.queue("greetings") as queue:
        await queue.push({"hello": "world"})
        # Pushes need not be awaited one by one: they travel together, in order.
        last = [queue.push(f"message number {number}") for number in range(2, 6)][-1]
        print("pushed, the last one has id", await last)


async def consume(bus: Bus) -> None:
    async with bus.queue("greetings") as queue:
        async for message in queue.consume(max=5):
            print(f"{message.id}: {message.data}")


async def main(url: str) -> None:
    async with Bus(url) as bus:
        # It does not matter who comes first.
        await asyncio.gather(consume(bus), produce(bus))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
