"""Two peers that talk over a channel.

python examples/restaurant.py                     both ends in one process, in memory
python examples/restaurant.py sqlite:///bus.db    the same in a file; any store URL will do
"""

import asyncio
import sys

from onebus import Bus, Message


async def serve(bus: Bus) -> None:
    over = asyncio.Event()
    channel = bus.channel("table 7")

    async def answer(message: Message) -> None:
        print(f"guest: {message.data}")
        await channel.send("Certainly." if "please" in message.data else "Pardon?")

    channel.on("remote:connect", lambda: channel.send("Good evening! What would you like?"))
    channel.on("message", answer)
    channel.on("end", over.set)
    await channel.listen()
    await over.wait()
    print("The guest has left.")


async def visit(bus: Bus) -> None:
    wishes = ["Soup", "The soup, please"]
    satisfied = asyncio.Event()
    channel = bus.channel("table 7")

    async def wish(message: Message) -> None:
        print(f"waiter: {message.data}")
        if wishes:
            await channel.send(wishes.pop(0))
        else:
            satisfied.set()

    channel.on("message", wish)
    await channel.connect()
    await satisfied.wait()
    await channel.end()


async def main(url: str) -> None:
    async with Bus(url) as restaurant, Bus(url) as street:
        await asyncio.gather(serve(restaurant), visit(street))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://restaurant"))
