"""A service that answers requests: one reply, many replies, or an error.

python examples/request_reply.py                     in memory
python examples/request_reply.py sqlite:///bus.db    in a file; any store URL will do
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from onebus import Bus
from onebus.errors import NoOneServes, RequestFailed


async def square(number: int) -> int:
    if not isinstance(number, int):
        raise TypeError(f"{number!r} is not a number")
    return number * number


async def count_down(start: int) -> AsyncIterator[int]:
    for number in range(start, 0, -1):
        yield number


async def main(url: str) -> None:
    async with Bus(url) as servers, Bus(url) as clients:
        squares = clients.service("squares")
        try:
            await squares.request(7)
        except NoOneServes as error:
            print(error)

        await servers.service("squares").serve(square)
        print("7 x 7 =", await squares.request(7, timeout=5))
        try:
            await squares.request("seven")
        except RequestFailed as error:
            print(f"{error.remote_code}: {error}")

        await servers.service("countdown").serve(count_down)
        async for number in clients.service("countdown").stream(3):
            print(number, end=" ", flush=True)
        print("lift-off")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://services"))
