"""Workers that share jobs: a job that fails is tried again, and one that always fails is put aside with the reason.

python examples/reliable_worker.py                     in memory
python examples/reliable_worker.py sqlite:///bus.db    in a file; start it several times, with any store URL
"""

import asyncio
import sys
from collections import Counter

from onebus import Bus, Message

JOBS = [{"job": number} for number in range(1, 9)]
BAD_JOB = 4


async def handle(message: Message) -> None:
    if message.data["job"] == BAD_JOB:
        raise ValueError("this one never works")


async def work(bus: Bus, name: str, done: Counter[str], everything_done: asyncio.Event) -> None:
    async with bus.queue("jobs") as queue:
        async for message in queue.consume(lease=30):
            try:
                await handle(message)
            except ValueError as error:
                print(f"job {message.data['job']} failed at attempt {message.attempts}: {error}")
                if message.attempts < 3:
                    # Without this it would come back when the lease has ended.
                    await message.release(delay=0.05)
                else:
                    await message.reject(str(error))
                    done["given up"] += 1
            else:
                await message.ack()
                done[name] += 1
            if done.total() == len(JOBS):
                everything_done.set()


async def main(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many(JOBS)
        done: Counter[str] = Counter()
        everything_done = asyncio.Event()
        workers = [asyncio.create_task(work(bus, name, done, everything_done)) for name in ("Ann", "Ben")]

        await everything_done.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

        print(f"Ann and Ben did {done['Ann'] + done['Ben']} jobs")
        for letter in await queue.dead.list():
            print(f"put aside: job {letter.data['job']}, {letter.reason}")
        print(f"once more: {await queue.redrive()} job is back in the queue")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
