"""What the bus can do, shown in some seconds on a temporary SQLite file: run it with `make demo`.

The file plays several parts: without arguments it is the demo, and it starts itself once more as `work`, a worker
that gets killed, as `listen`, a consumer in another process, and as `serve`, a service.
"""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from onebus import Bus, Message, Persistable
from onebus.errors import NoOneServes

PRODUCERS = 1_000
MESSAGES_EACH = 100
PINGS = 50
LEASE_SECONDS = 1.0


class Cart(Persistable):
    """An object that all processes of the bus share."""

    items: list[str] = []  # noqa: RUF012 (each cart gets a copy of its own)


# The demo


async def demo(url: str) -> None:
    print(f"A bus in one file: {url}")
    async with Bus(url) as bus:
        await push_and_consume(bus)
        await kill_a_worker(bus, url)
        await put_aside(bus)
        await wake_another_process(bus, url)
        await talk(bus, url)
        await ask(bus, url)
        await share(bus, url)
    await call_the_doctor(url)


async def push_and_consume(bus: Bus) -> None:
    total = PRODUCERS * MESSAGES_EACH
    title(f"A queue with {total:,} messages")
    explain(f"{PRODUCERS:,} producers at once; each waits until its message is on disk before it pushes the next.")
    async with bus.queue("events") as queue:

        async def produce(number: int) -> None:
            for index in range(MESSAGES_EACH):
                await queue.push({"producer": number, "event": index})

        started = time.perf_counter()
        await asyncio.gather(*(produce(number) for number in range(PRODUCERS)))
        show_rate("pushed", total, started)

        started = time.perf_counter()
        ids = [message.id async for message in queue.consume(reliable=True, max=total) if await acked(message)]
        show_rate("consumed and acknowledged", len(ids), started)
        show(f"In order, without a gap: {ids == list(range(1, total + 1))}.")


async def kill_a_worker(bus: Bus, url: str) -> None:
    title("Two workers share the jobs, and one of them is killed")
    async with bus.queue("jobs") as queue:
        await queue.push_many([f"job {number}" for number in range(1, 11)])
        child = await start_part("work", url)
        show(f"Process {child.pid}: {await next_line(child)}")
        child.kill()
        await child.wait()
        show(f"kill -9 {child.pid}")
        killed = time.perf_counter()
        async for message in queue.consume(lease=30, max=10):
            if message.attempts > 1:
                waited = time.perf_counter() - killed
                show(f"{message.data} came back after {waited:.1f} s. Attempt {message.attempts}.")
            await message.ack()
        show(f"All ten are done; {await queue.count()} wait. Nothing was lost.")


async def put_aside(bus: Bus) -> None:
    title("A message that nobody can handle, and one that is not due yet")
    async with bus.queue("letters") as queue:
        due = time.perf_counter() + 0.5
        await queue.push("not before half a second has passed", delay=0.5)
        await queue.push("unreadable")
        async for message in queue.consume(lease=30, max=2):
            if message.data == "unreadable":
                await message.reject("I cannot read it")
            else:
                show(f"Came {max(time.perf_counter() - due, 0) * 1000:.0f} ms after it was due: {message.data}")
                await message.ack()
        for letter in await queue.dead.list():
            show(f"Put aside: {letter.data!r}, because {letter.reason!r}.")


async def wake_another_process(bus: Bus, url: str) -> None:
    title("Another process waits for messages")
    async with bus.queue("pings") as queue:
        child = await start_part("listen", url)
        show(f"Process {child.pid}: {await next_line(child)}")
        for _ in range(PINGS):
            await queue.push(time.monotonic_ns())
            await asyncio.sleep(0.01)
        show(f"Process {child.pid}: {await next_line(child)}")
        await child.wait()
    explain("It does not poll: it sleeps until it is woken. The time includes the writing to disk.")


async def talk(bus: Bus, url: str) -> None:
    title("Two peers talk over a channel")
    over = asyncio.Event()
    async with Bus(url) as other:
        waiter, guest = bus.channel("table 7"), other.channel("table 7")
        waiter.on("remote:connect", lambda: waiter.send("What would you like?"))
        waiter.on("message", lambda message: show(f"guest: {message.data}"))
        waiter.on("end", over.set)

        async def answer(message: Message) -> None:
            show(f"waiter: {message.data}")
            await guest.send("Soup, please.")
            await guest.end()

        guest.on("message", answer)
        await waiter.listen()
        await guest.connect()
        await over.wait()


async def ask(bus: Bus, url: str) -> None:
    title("A service answers")
    squares = bus.service("squares")
    try:
        await squares.request(7)
    except NoOneServes as error:
        show(f"Before it is started: {error}")
    child = await start_part("serve", url)
    show(f"Process {child.pid}: {await next_line(child)}")
    show(f"7 x 7 = {await squares.request(7)}")
    child.terminate()
    await child.wait()


async def share(bus: Bus, url: str) -> None:
    title("Processes share an object")
    cart = Cart(bus, "cart-7")
    cart.items.append("book")
    show(f"Saved: {', '.join(await cart.save())}.")
    async with Bus(url) as other:
        same = Cart(other, "cart-7")
        await same.load()
        show(f"Loaded elsewhere: {same.items}.")


async def call_the_doctor(url: str) -> None:
    title("onebus doctor")
    doctor = await asyncio.create_subprocess_exec(sys.executable, "-m", "onebus.cli", "doctor", url)
    await doctor.wait()


# The other processes


async def work(url: str) -> None:
    """Take three jobs and never finish them."""
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        taken = []
        async for message in queue.consume(lease=LEASE_SECONDS, prefetch=1):
            taken.append(message.data)
            if len(taken) == 3:
                tell(f"I have {', '.join(taken)} for {LEASE_SECONDS:.0f} second, and work…")
                await asyncio.Event().wait()


async def listen(url: str) -> None:
    """Tell how old messages were when they came."""
    async with Bus(url) as bus, bus.queue("pings") as queue:
        tell("I wait.")
        ages_ms = [(time.monotonic_ns() - message.data) / 1e6 async for message in queue.consume(max=PINGS)]
        ages_ms.sort()
        tell(f"{PINGS} messages came after {ages_ms[PINGS // 2]:.1f} ms (median), {ages_ms[-1]:.1f} ms (slowest).")


async def serve(url: str) -> None:
    """Answer with squares, until terminated."""
    async with Bus(url) as bus:
        await bus.service("squares").serve(lambda number: number * number)
        tell("I serve squares.")
        await asyncio.Event().wait()


# Small things


async def acked(message: Message) -> bool:
    await message.ack()
    return True


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
        case ["work", url]:
            asyncio.run(work(url))
        case ["listen", url]:
            asyncio.run(listen(url))
        case ["serve", url]:
            asyncio.run(serve(url))
        case _:
            with tempfile.TemporaryDirectory(prefix="onebus-demo-") as folder:
                asyncio.run(demo(f"sqlite:///{Path(folder) / 'bus.db'}"))


if __name__ == "__main__":
    main()
