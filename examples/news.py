"""A feed: what is published reaches everybody who follows it, now or a little later.

python examples/news.py                     everybody in one process, in memory
python examples/news.py sqlite:///bus.db    the same in a file; any store URL will do
"""

import asyncio
import sys

from onebus import Bus
from onebus.objects.feeds.subscription import FeedSubscription


async def read(name: str, news: FeedSubscription, count: int) -> None:
    for _ in range(count):
        message = await anext(news)
        print(f"{name} reads {message.message_id}: {message.data}")


async def main(url: str) -> None:
    async with Bus(url) as station, Bus(url) as readers:
        await station.publish("/weather", "the sun shines", max_backlog_age=0.001)
        await station.publish("/weather", "it will rain")
        await station.publish("/weather", "it rains")

        ann = await readers.subscribe("/weather", last_id=1)  # has read the first message before
        ben = await readers.subscribe("/weather", last_id=-2)  # begins with the newest one
        await station.publish("/weather", "take an umbrella")
        await asyncio.gather(read("Ann", ann, 3), read("Ben", ben, 2))

        print("the memory of /weather:", [message.data for message in await readers.backlog("/weather")])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://news"))
