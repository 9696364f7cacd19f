"""A server, a producer and a worker that speak HTTP with each other.

    python examples/work.py [URL of a store]

The worker fails the first time it gets the third message, which then comes again.
"""

import asyncio
import logging
import socket
import sys

import uvicorn

from onebus import Bus
from onebus.http import Consumer, HttpMessage, Producer
from onebus.web import app

MESSAGES = 5


async def produce(url: str) -> None:
    async with Producer(url, queue="jobs") as producer:
        for number in range(1, MESSAGES + 1):
            await producer.add_new_message({"job": number})


async def work(url: str) -> None:
    done = asyncio.Semaphore(0)

    async def handle(message: HttpMessage) -> None:
        if message.payload["job"] == 3 and message.attempts == 1:
            raise RuntimeError("the first attempt fails")
        print(f"job {message.payload['job']} done at attempt {message.attempts}")
        done.release()

    async with Consumer(url, queue="jobs") as consumer:
        working = asyncio.create_task(consumer.work(handle, concurrency=2, retry_delay=0.1))
        for _ in range(MESSAGES):
            await done.acquire()
        # What it has begun is finished first.
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def main(store: str) -> None:
    logging.getLogger("onebus").setLevel(logging.CRITICAL)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app(Bus(store)), log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await asyncio.gather(produce(url), work(url))
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
