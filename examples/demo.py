"""What the bus can do, shown in some seconds on a temporary SQLite file: run it with `make demo`.

The file plays three parts: without arguments it is the demo, and it starts itself once more as `hold`, a consumer
that gets killed, and as `follow`, a reader in another process.
"""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from onebus.log.batch import Entry, decode
from onebus.log.claims import Lease
from onebus.log.retention import Retention
from onebus.log.writer import LogWriter
from onebus.stores import Store, create_store
from onebus.stores.following import claimant, follow

PRODUCERS = 1_000
MESSAGES_EACH = 100
PINGS = 50


# The demo


async def demo(url: str) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(create_store(url))
        writer = LogWriter(store.append, clock=now_ms)
        stack.push_async_callback(writer.close)
        print(f"A bus in one file: {url}")
        await append_many(store, writer)
        await read_back(store)
        await let_a_lease_end(store, writer)
        await kill_a_consumer(store, writer, url)
        await wake_another_process(writer, url)
        await trim(store)
    await call_the_doctor(url)


async def append_many(store: Store, writer: LogWriter) -> None:
    total = PRODUCERS * MESSAGES_EACH
    title(f"Append {total:,} messages")
    explain(f"{PRODUCERS:,} producers at once; each waits until its message is on disk before it sends the next.")

    async def produce(number: int) -> None:
        for index in range(MESSAGES_EACH):
            await writer.append("events", Entry(f"event {index} of producer {number}".encode().ljust(100)))

    started = time.perf_counter()
    await asyncio.gather(*(produce(number) for number in range(PRODUCERS)))
    show_rate("appended", total, started)
    stat = await store.stat("events")
    if stat is not None:
        show(f"The log now holds the ids {stat.first_id:,} to {stat.last_id:,}, {stat.bytes / 1e6:.1f} MB.")


async def read_back(store: Store) -> None:
    title("Read them back")
    started = time.perf_counter()
    after, count, gaps = 0, 0, 0
    while batches := (await store.read("events", after=after)).batches:
        for batch in batches:
            gaps += batch.first_id != after + 1
            count += len(decode(batch.blob).payloads())
            after = batch.last_id
    show_rate("read", count, started)
    show(f"Gaps between the ids: {gaps}.")


async def let_a_lease_end(store: Store, writer: LogWriter) -> None:
    title("Two consumers share the work, one of them dies")
    await writer.append_many("jobs", jobs(1, 10))
    show("Ten jobs wait.")
    lost = await store.claim("jobs", limit=5, lease_seconds=0.5, owner="anna")
    show(f"Anna claims {ids(lost.leases)} for half a second, and is never heard of again.")
    done = await store.claim("jobs", limit=5, lease_seconds=30, owner="ben")
    await store.settle("jobs", done.leases)
    show(f"Ben claims {ids(done.leases)} and settles them.")
    await writer.append_many("jobs", jobs(11, 15))
    await asyncio.sleep(0.6)
    show("Five new jobs arrive, and Anna's lease ends.")
    back = await store.claim("jobs", limit=8, lease_seconds=30, owner="ben")
    for lease in back.leases:
        show(f"Ben gets {ids([lease])}, attempt {lease.attempts}.")
    await store.settle("jobs", back.leases)
    explain("What comes back goes before what is new, and says that it was tried before.")


async def kill_a_consumer(store: Store, writer: LogWriter, url: str) -> None:
    title("A consumer's process is killed")
    await writer.append_many("orders", jobs(1, 5))
    child = await start_part("hold", url)
    show(f"Process {child.pid}: {await next_line(child)}")
    child.kill()
    await child.wait()
    killed = time.perf_counter()
    show(f"kill -9 {child.pid}")
    async with claimant(store, "orders", lease_seconds=30, owner="parent") as consumer:
        claim = await consumer.next()
        consumer.done(claim.leases)
    waited = time.perf_counter() - killed
    show(f"{waited:.1f} s later, when its lease has ended, {ids(claim.leases)} are back. Nothing was lost.")


async def wake_another_process(writer: LogWriter, url: str) -> None:
    title("Another process follows a log")
    await writer.append("pings", Entry(b"welcome"))
    child = await start_part("follow", url)
    show(f"Process {child.pid}: {await next_line(child)}")
    for _ in range(PINGS):
        await writer.append("pings", Entry(str(time.monotonic_ns()).encode()))
    show(f"Process {child.pid}: {await next_line(child)}")
    await child.wait()
    explain("It does not poll: it sleeps until it is woken. The time includes the writing to disk.")


async def trim(store: Store) -> None:
    title("Keep only the newest 1,000 messages")
    first_id = await store.trim("events", Retention(max_count=1_000))
    stat = await store.stat("events")
    if stat is not None:
        show(f"The log now begins at id {first_id:,} and has {stat.last_id - first_id + 1:,} messages.")


async def call_the_doctor(url: str) -> None:
    title("onebus doctor")
    doctor = await asyncio.create_subprocess_exec(sys.executable, "-m", "onebus.cli", "doctor", url)
    await doctor.wait()


# The other processes


async def hold(url: str) -> None:
    """Claim what is there and work on it for ever."""
    async with create_store(url) as store:
        claim = await store.claim("orders", limit=5, lease_seconds=1.0, owner="child")
        tell(f"I hold {ids(claim.leases)} for one second, and work…")
        await asyncio.Event().wait()


async def follow_pings(url: str) -> None:
    """Read the log as it grows, and tell how old the messages were when they came."""
    async with create_store(url) as store:
        ages_ms: list[float] = []
        async for found in follow(store, "pings", after=0):
            now_ns = time.monotonic_ns()
            for value in (value for batch in found.batches for value in decode(batch.blob).payloads()):
                if value == b"welcome":
                    tell("I follow the log.")
                else:
                    ages_ms.append((now_ns - int(value)) / 1e6)
            if len(ages_ms) == PINGS:
                break
    ages_ms.sort()
    tell(f"{PINGS} messages reached me after {ages_ms[PINGS // 2]:.1f} ms (median), {ages_ms[-1]:.1f} ms (slowest).")


# Small things


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def jobs(first: int, last: int) -> list[Entry]:
    return [Entry(f"job {number}".encode()) for number in range(first, last + 1)]


def ids(leases: Sequence[Lease]) -> str:
    return ", ".join(f"{lease.first}-{lease.last}" for lease in leases)


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def explain(text: str) -> None:
    print(f"  ({text})", flush=True)


def show(text: str) -> None:
    print(f"  {text}", flush=True)


def tell(text: str) -> None:
    """Say something to the process that started this one."""
    print(text, flush=True)


def show_rate(done: str, count: int, started: float) -> None:
    seconds = time.perf_counter() - started
    show(f"{count:,} messages {done} in {seconds:.2f} s: {count / seconds:,.0f} a second.")


async def start_part(part: str, url: str) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, __file__, part, url, stdout=PIPE)


async def next_line(child: Process) -> str:
    if child.stdout is None:
        return ""
    return (await child.stdout.readline()).decode().rstrip()


def main() -> None:
    match sys.argv[1:]:
        case ["hold", url]:
            asyncio.run(hold(url))
        case ["follow", url]:
            asyncio.run(follow_pings(url))
        case _:
            with tempfile.TemporaryDirectory(prefix="onebus-demo-") as folder:
                asyncio.run(demo(f"sqlite:///{Path(folder) / 'bus.db'}"))


if __name__ == "__main__":
    main()
