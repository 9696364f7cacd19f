"""A session that several processes share: each saves what it has changed, and loads what the others have.

python examples/session.py                     in memory
python examples/session.py sqlite:///bus.db    in a file; any store URL will do
"""

import asyncio
import sys

from onebus import Bus, Persistable


class Session(Persistable):
    """What is known of a visitor. Each attribute is saved by itself, when it has changed."""

    user: str = ""
    cart: list[str] = []  # noqa: RUF012 (each session gets a copy of its own)
    visits: int = 0


async def main(url: str) -> None:
    async with Bus(url) as web, Bus(url) as shop:
        session = Session(web, "session-42", user="ann", visits=1)
        print("saved:", ", ".join(await session.save()))
        await session.persist(ttl=3600)

        same = Session(shop, "session-42")
        print("found:", await same.load(), same.user, same.cart, same.visits)
        same.cart.append("book")
        print("saved:", ", ".join(await same.save()))

        await session.load()
        print("the web sees:", session.cart)
        print("nobody knows session-43:", await Session(shop, "session-43").load())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://sessions"))
