"""What becomes of the messages of a work queue when its workers and its server are killed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.log.batch import Entry, Kind
from onebus.objects.workqueue import WorkQueue
from tests.eventually import eventually
from tests.faults.program import Program, running_program
from tests.faults.programs import MAX_ATTEMPTS
from tests.services.port import free_port

MESSAGES = 10_000
POISON_EVERY = 1000
WORKERS = 32
HANDED_OUT = 5_000


def handled(programs: list[Program]) -> Counter[int]:
    """Return how often each message was handled."""
    lines = (line for program in programs for line in program.lines if line[0] == "handled")
    return Counter(int(line[1]) for line in lines)


async def test_killed_workers_and_a_killed_server_lose_no_message(tmp_path: Path) -> None:
    url, port, name = f"sqlite:///{tmp_path}/bus.db", free_port(), "jobs"
    payloads = [b"poison" if number % POISON_EVERY == 0 else b"good" for number in range(1, MESSAGES + 1)]
    async with Bus(url) as bus, bus.work_queue(name) as queue, AsyncExitStack() as stack:
        await queue.push_many([Entry(payload, Kind.TEXT) for payload in payloads])
        server = await stack.enter_async_context(running_program("serve_queues", url, str(port)))
        address = f"http://127.0.0.1:{port}"
        workers = [await stack.enter_async_context(running_program("work_over_http", address, name)) for _ in range(4)]
        await comes_true(lambda: len(handled(workers)) > 1000)

        for worker in workers[1:]:
            await worker.kill()
        await comes_true(lambda: len(handled(workers)) > 3000)
        await server.kill()
        await stack.enter_async_context(running_program("serve_queues", url, str(port)))

        async def is_empty() -> bool:
            state = await queue.state()
            return state.waiting + state.held == 0

        assert await eventually(is_empty, deadline_seconds=120)
        times = handled(workers)
        assert set(times) == set(range(1, MESSAGES + 1))
        letters = await queue.dead.list()
        poison = list(range(POISON_EVERY, MESSAGES + 1, POISON_EVERY))
        assert sorted(letter.message_id for letter in letters) == poison
        assert {letter.attempts for letter in letters} == {MAX_ATTEMPTS}
        assert max(times[letter.message_id] for letter in letters) <= MAX_ATTEMPTS
        attempts = [int(line[2]) for worker in workers for line in worker.lines]
        assert max(attempts) <= MAX_ATTEMPTS
        assert sum(number > 1 for number in attempts) >= MESSAGES // POISON_EVERY


async def comes_true(condition: Callable[[], bool]) -> None:
    async def asked() -> bool:
        return condition()

    await eventually(asked, deadline_seconds=60)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in ("postgres", "redis")]
)
async def test_no_message_is_with_two_of_many_workers_at_the_same_time(
    request: pytest.FixtureRequest, kind: str
) -> None:
    url, name = str(request.getfixturevalue(kind).url), f"q-{uuid4().hex}"
    handed: Counter[int] = Counter()

    async def work(queue: WorkQueue) -> None:
        while held := await queue.next(2):
            handed.update(one.id for one in held)
            await asyncio.gather(*(queue.done(one.id, one.fence) for one in held))

    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(Bus(url)) for _ in range(8)]
        queues = [await stack.enter_async_context(bus.work_queue(name, lease_seconds=60)) for bus in buses]
        await queues[0].push_many([Entry(b"x", Kind.TEXT)] * HANDED_OUT)

        await asyncio.gather(*(work(queue) for queue in queues for _ in range(WORKERS // len(queues))))

        assert len(handed) == HANDED_OUT
        assert set(handed.values()) == {1}
        state = await queues[0].state()
        assert (state.waiting, state.held) == (0, 0)
