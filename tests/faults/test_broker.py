"""A broker that is killed again and again, and consumers that are killed too, while messages flow."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from onebus.zmq import Publisher
from tests.conftest import running
from tests.eventually import eventually
from tests.faults.program import Program, running_program
from tests.services import BrokerServer

PARTITIONS = 4
KILLS = 10


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('broker')}/bus.db"


@asynccontextmanager
async def consuming(broker: BrokerServer, group: str) -> AsyncIterator[Program]:
    async with running_program("consume_from_broker", broker.management, f"{broker.consumers}|{group}") as program:
        yield program


class Load:
    """Publishes numbers to all partitions until it is ended, and knows which of them were acknowledged."""

    def __init__(self, publisher: Publisher) -> None:
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self._publisher = publisher
        self._is_over = False
        self._tasks = [asyncio.create_task(self._publish(partition)) for partition in range(PARTITIONS)]

    async def _publish(self, partition: int) -> None:
        number = 0
        while not self._is_over:
            # Several in flight, whose order has to be kept.
            numbers = range(number, number + 10)
            await asyncio.gather(*(self._publisher.send("t", partition, [one]) for one in numbers))
            self.acknowledged[partition] += numbers
            number = numbers.stop
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)


def got_by(program: Program, partition: int) -> list[int]:
    """Return the numbers of a partition that a program got, again and again if they came again."""
    return [int(line[2]) for line in program.lines if line[0] == "got" and int(line[1]) == partition]


def first_times(programs: Iterable[Program], partition: int) -> list[int]:
    """Return the numbers of a partition in the order in which somebody got them first."""
    return list(dict.fromkeys(number for program in programs for number in got_by(program, partition)))


async def has_all(programs: list[Program], load: Load) -> None:
    async def is_there() -> bool:
        return not any(set(first_times(programs, one)) < set(numbers) for one, numbers in load.acknowledged.items())

    await eventually(is_there, deadline_seconds=60)


@pytest.mark.timeout(400)
async def test_all_that_was_acknowledged_reaches_each_group_in_order_while_the_broker_is_killed(url: str) -> None:
    with running(BrokerServer(url, "--partitions", str(PARTITIONS), "--flush-interval", "0.01")) as broker:
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(Publisher(broker.publishers))
            groups = {
                group: [await stack.enter_async_context(consuming(broker, group)) for _ in range(members)]
                for group, members in (("alone", 1), ("shared", 2))
            }
            for programs in groups.values():
                for program in programs:
                    await program.line("ready")
            load = Load(publisher)
            for _ in range(KILLS):
                known = len(groups["alone"][0].lines)
                await groups["alone"][0].line("got", after=known)
                broker.kill()
                broker.start()
                await asyncio.to_thread(broker.wait_ready)
            await load.end()
            for programs in groups.values():
                await has_all(programs, load)

    for partition, numbers in load.acknowledged.items():
        assert len(numbers) >= 10 * KILLS
        assert first_times(groups["alone"], partition) == numbers
        one, other = (got_by(program, partition) for program in groups["shared"])
        for mine, theirs in ((one, set(other)), (other, set(one))):
            # Going back is allowed after a crash, but whoever goes on leaves out only what the other one has had.
            assert all(theirs.issuperset(range(before + 1, after)) for before, after in pairwise(mine))


async def test_nothing_is_lost_when_consumers_are_killed_in_the_middle(url: str) -> None:
    with running(BrokerServer(url, "--partitions", str(PARTITIONS), "--flush-interval", "0.01")) as broker:
        programs: list[Program] = []
        async with AsyncExitStack() as stack, Publisher(broker.publishers) as publisher:
            programs.append(await stack.enter_async_context(consuming(broker, "g")))
            await programs[0].line("ready")
            load = Load(publisher)
            for _ in range(3):
                programs.append(await stack.enter_async_context(consuming(broker, "g")))
                await programs[-1].line("got")
                await programs[-2].kill()
            await load.end()
            await has_all(programs, load)

    for partition, numbers in load.acknowledged.items():
        assert first_times(programs, partition) == numbers


async def test_a_consumer_that_hangs_loses_its_partitions_and_may_come_back(url: str) -> None:
    with running(BrokerServer(url, "--partitions", str(PARTITIONS), "--flush-interval", "0.01")) as broker:
        async with consuming(broker, "g") as frozen, Publisher(broker.publishers) as publisher:
            await frozen.line("ready")
            frozen.signal(signal.SIGSTOP)
            await publisher.send("t", 0, [1])
            async with consuming(broker, "g") as other:
                taken_over = await other.line("got")
                known = len(frozen.lines)
                frozen.signal(signal.SIGCONT)
                # It hears that it was given up, and joins again.
                back = await frozen.line("ready", after=known)

    assert taken_over == ["got", "0", "1"]
    assert len(back) == 1 + PARTITIONS / 2
