"""What becomes of the partitions of a topic while the members of a group come, go, freeze and die."""

import asyncio
import itertools
import random
import signal
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.objects.topics.topic import Topic
from tests.eventually import eventually
from tests.faults.program import Program, running_program

PARTITIONS = 12
SECONDS = 60.0
PAUSE_SECONDS = 0.2
MOST_MEMBERS = 5
FROZEN_SECONDS = 3.0
"""Longer than the lease of a member."""


class Told(NamedTuple):
    """One line of a member: what happened to some messages of a partition."""

    what: str
    partition: int
    fence: int
    first: int
    last: int


class Members:
    """The processes of a group, which come and go."""

    def __init__(self, url: str, topic: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._topic = topic
        self._stack = stack
        self._frozen: set[Program] = set()
        self.everybody: list[Program] = []
        self.living: list[Program] = []

    async def start(self) -> None:
        member = await self._stack.enter_async_context(running_program("be_a_member", self._url, self._topic))
        self.everybody.append(member)
        self.living.append(member)

    async def disturb(self, chance: random.Random) -> None:
        """Do something to one of them."""
        awake = [member for member in self.living if member not in self._frozen]
        if len(self.living) < MOST_MEMBERS and (not awake or chance.random() < 0.4):
            await self.start()
            return
        if not awake:
            return
        member = chance.choice(awake)
        match chance.choice(("leave", "kill", "freeze", "freeze")):
            case "leave":
                self.living.remove(member)
                member.signal(signal.SIGTERM)
            case "kill":
                self.living.remove(member)
                await member.kill()
            case "freeze":
                member.signal(signal.SIGSTOP)
                self._frozen.add(member)
                asyncio.get_running_loop().call_later(FROZEN_SECONDS, self._wake, member)

    def _wake(self, member: Program) -> None:
        self._frozen.discard(member)
        if member in self.living:
            member.signal(signal.SIGCONT)

    async def wake_all(self) -> None:
        for member in list(self._frozen):
            self._wake(member)

    def told(self) -> list[Told]:
        return [
            Told(line[0], *map(int, line[1:]))
            for member in self.everybody
            for line in member.lines
            if line[0] in ("got", "committed", "lost")
        ]

    def owners(self) -> dict[tuple[int, int], set[int]]:
        """Return by partition and fence which members had it."""
        owners = defaultdict(set)
        for number, member in enumerate(self.everybody):
            for line in member.lines:
                if line[0] == "got":
                    owners[int(line[1]), int(line[2])].add(number)
        return owners


async def publish_for_ever(topic: Topic) -> None:
    number = 0
    while True:
        await topic.publish_many(
            list(range(number, number + 10)), partition=number // 10 % (await topic.describe()).partitions
        )
        number += 10
        await asyncio.sleep(0.005)


def check_partition(told: Sequence[Told], last_id: int) -> None:
    """Check that one partition was delivered whole and in order, and again only as far as it was not committed.

    A member that was killed right after a commit has not told of it, so more may have been committed than was told.
    """
    by_fence: dict[int, list[Told]] = defaultdict(list)
    for one in told:
        by_fence[one.fence].append(one)
    reached = committed = 0
    for fence in sorted(by_fence):
        got = [one for one in by_fence[fence] if one.what == "got"]
        assert all(later.first == earlier.last + 1 for earlier, later in itertools.pairwise(got))
        if got:
            assert committed < got[0].first <= reached + 1, f"fence {fence} began with {got[0]} after {reached}"
            reached = max(reached, got[-1].last)
        committed = max([committed, *(one.last for one in by_fence[fence] if one.what == "committed")])
    assert reached == last_id


on_stores_of_processes = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in ("sqlite", "postgres", "redis")]
)


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return f"sqlite:///{tmp_path}/bus.db" if kind == "sqlite" else str(request.getfixturevalue(kind).url)


@on_stores_of_processes
async def test_a_member_that_was_frozen_cannot_commit_what_another_has_taken_over(kind: str, url: str) -> None:
    name = f"t-{uuid4().hex}"
    async with Bus(url) as bus:
        topic = bus.topic(name, partitions=1)
        await topic.create()
        publishing = asyncio.create_task(publish_for_ever(topic))
        async with running_program("be_a_slow_member", url, name) as frozen:
            await frozen.line("got")
            frozen.signal(signal.SIGSTOP)
            async with running_program("be_a_member", url, name) as other:
                await other.line("committed")
                frozen.signal(signal.SIGCONT)
                publishing.cancel()
                lost = await frozen.line("lost")
                before = frozen.lines[: frozen.lines.index(lost)]

    assert [line for line in before if line[0] == "got"][-1][1:] == lost[1:]


@pytest.fixture
def urls(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """The stores of several processes, one of each kind."""
    servers = [str(request.getfixturevalue(kind).url) for kind in ("postgres", "redis")]
    return [f"sqlite:///{tmp_path}/bus.db", *servers]


@pytest.mark.timeout(400)
@pytest.mark.xdist_group("postgres")
async def test_nothing_is_lost_or_out_of_order_while_members_come_go_freeze_and_die(urls: list[str]) -> None:
    # At the same time, because most of the time is spent waiting.
    async with asyncio.TaskGroup() as group:
        for url in urls:
            group.create_task(come_go_freeze_and_die(url))


async def come_go_freeze_and_die(url: str) -> None:
    name = f"t-{uuid4().hex}"
    chance = random.Random(url.partition(":")[0])
    async with Bus(url) as bus, AsyncExitStack() as stack:
        topic = bus.topic(name, partitions=PARTITIONS)
        await topic.create()
        publishing = asyncio.create_task(publish_for_ever(topic))
        members = Members(url, name, stack)
        ends_at = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < ends_at:
            await members.disturb(chance)
            await asyncio.sleep(PAUSE_SECONDS)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await members.wake_all()
        await members.start()

        async def is_done() -> bool:
            return not any(partition.lag for partition in await topic.lag("group"))

        await eventually(is_done, deadline_seconds=60)
        last_ids = [partition.last_id for partition in await topic.partitions()]

        told = members.told()
        assert all(len(owners) == 1 for owners in members.owners().values())
        assert sum(last_ids) > 1000
        # How often partitions moved is a matter of the machine's pace; that they did is not.
        assert len({number for owners in members.owners().values() for number in owners}) > 1
        for number, last_id in enumerate(last_ids):
            check_partition([one for one in told if one.partition == number], last_id)
