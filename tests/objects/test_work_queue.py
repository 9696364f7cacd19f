import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import CorruptBatch, InvalidArgument, LeaseLost, NotAttached
from onebus.log.batch import Entry, Kind
from onebus.objects.dispenser import Held
from onebus.objects.workqueue import WorkQueue
from onebus.stores.base import Claim, Store
from tests.backings import on_async_stores
from tests.clock import FakeClock
from tests.eventually import eventually
from tests.messages import batch_of
from tests.objects.conftest import Connect

pytestmark = on_async_stores


def ids(held: list[Held]) -> list[int]:
    return [one.id for one in held]


async def push(queue: WorkQueue, *data: Any) -> list[int]:
    return [await queue.push(one) for one in data]


class CountedCalls:
    """Counts the calls that a store gets from now on."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        for name in ("append", "claim", "settle", "release"):
            self._count(store, name, monkeypatch)

    def _count(self, store: Store, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        call = getattr(store, name)

        async def counted(*arguments: Any, **options: Any) -> Any:
            if not arguments[0].endswith("|later"):
                self.names.append(name)
            return await call(*arguments, **options)

        monkeypatch.setattr(store, name, counted)


# Handing out


async def test_messages_are_handed_out_in_order_each_to_one_worker(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue, other_bus.work_queue(name) as other:
        assert await push(queue, "a", {"b": 1}, b"c") == [1, 2, 3]

        held = [await queue.next(), await other.next(), await queue.next(), await other.next()]

        assert [[(one.id, one.message.data) for one in some] for some in held] == [
            [(1, "a")],
            [(2, {"b": 1})],
            [(3, b"c")],
            [],
        ]


async def test_a_message_that_is_done_is_gone(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        await push(queue, "a", "b")
        (held,) = await queue.next()

        await queue.done(held.id, held.fence)

        state = await queue.state()
        assert (state.waiting, state.held) == (1, 0)
        assert ids(await queue.next(9)) == [2]


async def test_a_message_whose_time_is_up_is_at_the_front_again(connect: Connect, clock: FakeClock, name: str) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10) as queue:
        await push(queue, "a", "b", "c")
        await queue.next(2)
        clock.advance(11)

        again = await queue.next(3)

        assert ids(again) == [1, 2, 3]
        assert [one.message.attempts for one in again] == [2, 2, 1]


async def test_each_worker_may_have_a_time_of_its_own(connect: Connect, clock: FakeClock, name: str) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10) as queue:
        await push(queue, "a", "b")
        short, long = await asyncio.gather(queue.next(lease_seconds=5), queue.next(lease_seconds=60))
        clock.advance(11)

        assert (ids(short), ids(long)) == ([1], [2])
        assert ids(await queue.next(9)) == [1]


async def test_a_message_may_be_finished_by_id_alone_in_another_process(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue, other_bus.work_queue(name) as other:
        await push(queue, "a", "b")
        await queue.next()

        await other.done(1)

        for not_held in (1, 2, 3):
            with pytest.raises(LeaseLost):
                await other.done(not_held)


async def test_without_the_fence_nobody_finishes_what_has_timed_out(
    connect: Connect, clock: FakeClock, name: str
) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10) as queue:
        await push(queue, "a")
        await queue.next()
        clock.advance(11)

        with pytest.raises(LeaseLost):
            await queue.done(1)
        assert ids(await queue.next()) == [1]


async def test_done_may_be_repeated_with_the_same_fence(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue, other_bus.work_queue(name) as other:
        await push(queue, "a", "b")
        (held,) = await queue.next()

        await asyncio.gather(queue.done(held.id, held.fence), queue.done(held.id, held.fence))
        await other.done(held.id, held.fence)

        with pytest.raises(LeaseLost):
            await other.done(2, held.fence)


async def test_a_lost_lease_has_no_power_over_its_successor(connect: Connect, clock: FakeClock, name: str) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10) as queue:
        await push(queue, "a")
        (late,) = await queue.next()
        clock.advance(11)
        (current,) = await queue.next()

        for attempt in (
            queue.done(late.id, late.fence),
            queue.release(late.id, late.fence),
            queue.extend(late.id, late.fence),
        ):
            with pytest.raises(LeaseLost):
                await attempt
        await queue.done(current.id, current.fence)


async def test_a_released_message_comes_back_before_newer_ones_and_counts_its_attempts(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        await push(queue, "a", "b")
        (held,) = await queue.next()

        await queue.release(held.id, held.fence)

        assert [(one.id, one.message.attempts) for one in await queue.next(2)] == [(1, 2), (2, 1)]


async def test_an_extended_lease_lasts(connect: Connect, clock: FakeClock, name: str) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10) as queue:
        await push(queue, "a")
        (held,) = await queue.next()

        await queue.extend(held.id, held.fence, lease_seconds=60)

        clock.advance(30)
        assert await queue.next() == []
        await queue.done(held.id, held.fence)


# Waiting


async def test_who_waits_is_served_as_messages_come_first_come_first_served(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    async with bus.work_queue(name) as queue, other_bus.work_queue(name) as other:
        first = asyncio.create_task(queue.next(wait_seconds=30))
        await asyncio.sleep(0)
        second = asyncio.create_task(queue.next(wait_seconds=30))
        await asyncio.sleep(0)

        await push(other, "a")
        assert ids(await asyncio.wait_for(first, 10)) == [1]
        await push(other, "b")
        assert ids(await asyncio.wait_for(second, 10)) == [2]


async def test_who_waits_gets_what_somebody_else_lets_time_out(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue, other_bus.work_queue(name) as other:
        await push(queue, "a")
        await other.next(lease_seconds=0.3)

        again = await queue.next(wait_seconds=30)

        assert [(one.id, one.message.attempts) for one in again] == [(1, 2)]


async def test_waiting_ends_with_nothing_when_the_time_is_up(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        patient = asyncio.create_task(queue.next(wait_seconds=60, lease_seconds=5))

        assert await queue.next(wait_seconds=0.05) == []
        assert await queue.next() == []
        patient.cancel()


async def test_closing_sends_those_away_who_wait(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        waiting = asyncio.create_task(queue.next(wait_seconds=60))
        await asyncio.sleep(0)

    assert await waiting == []
    with pytest.raises(NotAttached):
        await queue.next()


async def test_what_was_taken_for_somebody_who_went_away_goes_back(
    bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bus.link.store
    claim, is_claimed = store.claim, asyncio.Event()

    async def claim_for_who_leaves(log: str, **options: Any) -> Claim:
        claimed = await claim(log, **options)
        if not log.endswith("|later"):
            waiting.cancel()
            is_claimed.set()
        return claimed

    async with bus.work_queue(name, lease_seconds=60) as queue:
        await push(queue, "a")
        monkeypatch.setattr(store, "claim", claim_for_who_leaves)
        waiting = asyncio.create_task(queue.next(wait_seconds=60))
        await is_claimed.wait()
        with suppress(asyncio.CancelledError):
            await waiting
        monkeypatch.undo()

        again = await queue.next(wait_seconds=10)

        assert [(one.id, one.message.attempts) for one in again] == [(1, 1)]


async def test_what_reached_nobody_is_given_back_as_if_never_taken(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        await push(queue, "a")

        queue.give_back(await queue.next())

        assert [(one.id, one.message.attempts) for one in await queue.next(wait_seconds=10)] == [(1, 1)]


# Together


async def test_many_requests_at_once_share_the_way_to_the_store(
    bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bus.work_queue(name) as queue:
        await queue.push("first")
        calls = CountedCalls(bus.link.store, monkeypatch)

        await asyncio.gather(*(queue.push(number) for number in range(99)))
        held = [one for some in await asyncio.gather(*(queue.next() for _ in range(100))) for one in some]
        await asyncio.gather(*(queue.done(one.id, one.fence) for one in held))

        assert sorted(ids(held)) == list(range(1, 101))
        assert len(calls.names) <= 6


async def test_no_message_is_handed_to_two_of_many_workers(connect: Connect, name: str) -> None:
    handed: list[int] = []
    buses = [await connect() for _ in range(4)]

    async def work(queue: WorkQueue) -> None:
        while held := await queue.next(3):
            handed.extend(ids(held))
            await asyncio.gather(*(queue.done(one.id, one.fence) for one in held))

    async with buses[0].work_queue(name) as queue:
        await queue.push_many([Entry(b"x", Kind.TEXT)] * 1000)
        others = [await _opened(bus, name) for bus in buses[1:]]
        await asyncio.gather(*(work(one) for one in [queue, *others] for _ in range(4)))

        assert sorted(handed) == list(range(1, 1001))
        state = await queue.state()
        assert (state.waiting, state.held) == (0, 0)


async def _opened(bus: Bus, name: str) -> WorkQueue:
    queue = bus.work_queue(name)
    await queue.open()
    return queue


# Dead letters


async def test_after_so_many_attempts_a_message_is_a_dead_letter(connect: Connect, clock: FakeClock, name: str) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10, max_attempts=2) as queue:
        await push(queue, "poison", "good")
        for _ in range(2):
            assert ids(await queue.next()) == [1]
            clock.advance(11)

        assert ids(await queue.next()) == [2]

        (letter,) = await queue.dead.list()
        assert (letter.data, letter.attempts, letter.message_id) == ("poison", 2, 1)
        assert "2 times" in letter.reason
        await queue.done(2)
        state = await queue.state()
        assert (state.waiting, state.held, state.dead) == (0, 0, 1)


async def test_whoever_is_killed_while_burying_leaves_one_dead_letter(
    connect: Connect, clock: FakeClock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name, lease_seconds=10, max_attempts=1) as queue:
        await push(queue, "poison")
        await queue.next()
        clock.advance(11)
        # Somebody else claims it to bury it, does so, and is killed before settling it.
        (held,) = await _claimed(bus, name)
        await queue.dead.add([held.message], "delivered 1 times and never done")
        clock.advance(11)

        assert await queue.next() == []

        assert await queue.dead.count() == 1


async def _claimed(bus: Bus, name: str) -> list[Held]:
    async with bus.work_queue(name, lease_seconds=10) as queue:
        return await queue.next()


async def test_dead_letters_are_pushed_once_more(bus: Bus, name: str) -> None:
    async with bus.work_queue(name, max_attempts=1) as queue:
        await push(queue, "a")
        (held,) = await queue.next()
        await queue.release(held.id, held.fence)
        assert await queue.next() == []

        assert await queue.dead.redrive() == 1

        assert [one.message.data for one in await queue.next()] == ["a"]


async def test_a_batch_that_cannot_be_read_is_put_aside_and_reported(bus: Bus, name: str) -> None:
    errors: list[Exception] = []
    bus.on("error", errors.append)
    blob = bytearray(batch_of("broken"))
    blob[-1] ^= 1
    await bus.link.store.append(f"queue:{name}", bytes(blob))
    async with bus.work_queue(name) as queue:
        await queue.push("good")

        assert ids(await queue.next()) == [2]

        async def is_reported() -> bool:
            return [type(error) for error in errors] == [CorruptBatch]

        assert await eventually(is_reported)
        state = await queue.state()
        assert (state.waiting, state.held) == (0, 2)


async def test_a_large_batch_is_handed_out_piece_by_piece(bus: Bus, name: str) -> None:
    async with bus.queue(name) as producer, bus.work_queue(name) as queue:
        await producer.push_many([f"{number:100}" for number in range(1, 301)])

        taken = [await queue.next(7) for _ in range(43)]

        numbers = [int(one.message.data) for some in taken for one in some]
        assert numbers == list(range(1, 301))


# The same queue


async def test_queues_and_work_queues_of_one_name_share_their_messages(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as work, other_bus.queue(name) as queue:
        await queue.push("from Python")
        await work.push("to Python")
        (held,) = await work.next()
        await work.done(held.id)

        async for message in queue.consume(reliable=True, max=1):
            await message.ack()

        assert (held.message.data, message.data) == ("from Python", "to Python")


async def test_a_work_queue_outlives_everybody(connect: Connect, clock: FakeClock, name: str) -> None:
    bus = await connect(clock=clock)
    queue = bus.queue(name, ttl=5)
    await queue.attach()
    async with bus.work_queue(name) as work:
        await queue.push("a")
        await work.push("b")
        await queue.detach()
    clock.advance(3600)

    async with bus.work_queue(name) as work:
        assert ids(await work.next(9)) == [1, 2]


async def test_a_consumer_that_attaches_does_not_shorten_the_life_of_a_work_queue(
    connect: Connect, clock: FakeClock, name: str
) -> None:
    bus = await connect(clock=clock)
    async with bus.work_queue(name) as work:
        await work.push("a")
    async with bus.queue(name, ttl=5) as queue:
        await queue.push("b")
    clock.advance(3600)

    async with bus.work_queue(name) as work:
        assert ids(await work.next(9)) == [1, 2]


async def test_a_delayed_message_comes_when_it_is_due(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        due = time.time() + 0.3
        await queue.push("later", delay_seconds=0.3)

        (held,) = await queue.next(wait_seconds=30)

        assert time.time() >= due
        assert held.message.data == "later"
        assert held.message.headers == {}


async def test_messages_are_listed_with_whether_they_are_held(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        await push(queue, *"abcde")
        held = await queue.next(3)
        await queue.done(held[1].id)

        listed = await queue.list()

        assert [(one.message.id, one.message.data, one.is_held) for one in listed] == [
            (1, "a", True),
            (3, "c", True),
            (4, "d", False),
            (5, "e", False),
        ]
        assert [one.message.id for one in await queue.list(after=1, limit=2)] == [3, 4]
        message = await queue.read(3)
        assert message is not None
        assert message.data == "c"
        assert await queue.read(6) is None


@pytest.mark.parametrize(("message_id", "fence"), [(0, 5), (-1, 5), (1 << 60, 5), (1, 0), (1, -2), (1, 1 << 60)])
async def test_numbers_that_nobody_ever_gave_are_refused(bus: Bus, name: str, message_id: int, fence: int) -> None:
    async with bus.work_queue(name) as queue:
        with pytest.raises(InvalidArgument):
            await queue.done(message_id, fence)


async def test_a_store_that_comes_back_is_used_again(bus: Bus, name: str) -> None:
    async with bus.work_queue(name) as queue:
        waiting = asyncio.create_task(queue.next(wait_seconds=30))
        await asyncio.sleep(0)
        await bus.link.store.drop(f"queue:{name}")

        await queue.push("a")

        assert ids(await waiting) == [1]

        async def lives_for_ever() -> bool:
            return (await queue.state()).ttl == 0

        assert await eventually(lives_for_ever)
