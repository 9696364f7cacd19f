"""A monitor in a process of its own: asks a server how it is, again and again, until its stdin ends."""

import asyncio
import json
import sys
import time

import uvloop

from bench.web.exchange import Script, perform, request

PAUSE_SECONDS = 0.01


async def look(port: int) -> list[float]:
    """Return how many milliseconds each answer took."""
    times_ms: list[float] = []
    enough = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    def script() -> Script:
        began = time.perf_counter()
        yield request("GET", "/healthz")
        times_ms.append((time.perf_counter() - began) * 1000)

    while not enough.done():
        await perform(port, [script()])
        await asyncio.sleep(PAUSE_SECONDS)
    return times_ms


if __name__ == "__main__":
    print(json.dumps(uvloop.run(look(int(sys.argv[1])))))
