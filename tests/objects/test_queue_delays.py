import asyncio
import time

import pytest

from onebus import Bus
from onebus.objects.delays import KEPT_SECONDS
from tests.clock import FakeClock
from tests.objects.conftest import Connect
from tests.objects.hearing import comes_true, errors_of, take, take_data


async def test_a_delayed_message_comes_when_it_is_due(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        begun = time.time()
        await queue.push("later", delay=0.2)
        await queue.push("now")

        taken = await take(queue, 2)

        assert [message.data for message in taken] == ["now", "later"]
        assert time.time() - begun >= 0.19


async def test_messages_come_in_the_order_in_which_they_are_due(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    async with timed_bus.queue(name, ttl=1000) as queue:
        await queue.push("third", delay=30)
        await queue.push("first", delay=10)
        await queue.push("second", at=clock() / 1000 + 20)
        assert await queue.count() == 0
        assert await take_data(queue, 0) == []

        taken = []
        for _ in range(3):
            clock.advance(10.001)
            taken += await take_data(queue, 1)

        assert taken == ["first", "second", "third"]
        assert await queue.count() == 0


async def test_messages_that_nobody_moved_in_time_come_in_the_order_in_which_they_were_due(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    async with timed_bus.queue(name) as queue:
        for delay in (3, 1, 2):
            await queue.push(delay, delay=delay)
        clock.advance(5)

        assert await take_data(queue, 3) == [1, 2, 3]


async def test_a_time_in_the_past_is_now(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        await queue.push("late", at=1.0)

        assert await take_data(queue, 1) == ["late"]


async def test_a_delayed_message_keeps_what_it_was_pushed_with(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    async with timed_bus.queue(name) as queue:
        pushed_ms = clock.now_ms
        await queue.push({"a": 1}, delay=5, key="k", headers={"h": "1"})
        await queue.push(b"plain", delay=5)
        clock.advance(6)

        full, plain = await take(queue, 2)

        assert (full.data, full.key, dict(full.headers), full.attempts) == ({"a": 1}, b"k", {"h": "1"}, 1)
        assert (plain.data, dict(plain.headers)) == (b"plain", {})
        assert plain.time_ms >= pushed_ms


async def test_delayed_messages_survive_their_producer(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    async with timed_bus.queue(name) as producer:
        for number in range(10):
            producer.push(number, delay=60 + number)
    other = await connect(clock=clock)
    await timed_bus.disconnect()
    clock.advance(3600)

    async with other.queue(name) as consumer:
        assert sorted(await take_data(consumer, 10)) == list(range(10))


async def test_delayed_messages_do_not_stay_for_ever(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    queue = timed_bus.queue(name)
    async with queue:
        await queue.push("soon", delay=1)
        await queue.push("in a month", delay=30 * 24 * 3600)
        await queue.push("soon", delay=1)
    clock.advance(30 * 24 * 3600 + KEPT_SECONDS - 100)
    assert await queue.store.stat(queue._later_log) is not None

    clock.advance(200)

    assert await queue.store.stat(queue._later_log) is None


async def test_a_delayed_message_is_delivered_once_to_whoever_leaves_at_once(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    async with bus.queue(name) as queue, other_bus.queue(name) as other:
        for number in range(30):
            await queue.push(number, delay=0.05 + 0.005 * number)

        taken = []
        for _ in range(15):
            taken += await take_data(queue, 1)
            taken += await take_data(other, 1)

        assert sorted(taken) == list(range(30))
        for log in (queue._log, queue._later_log):
            stat = await queue.store.stat(log)
            assert stat is not None
            assert (stat.claimable, stat.held) == (0, 0)


async def test_a_delayed_message_wakes_a_waiting_consumer(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue, other_bus.queue(name) as producer:
        errors = errors_of(queue)
        waiting = asyncio.create_task(take_data(queue, 1))
        await comes_true(lambda: queue.is_consuming)

        await producer.push("soon", delay=0.1)

        async with asyncio.timeout(5):
            assert await waiting == ["soon"]
        assert errors == []


@pytest.mark.parametrize("remove", [True, False])
async def test_a_reader_that_removes_nothing_moves_nothing(local_bus: Bus, name: str, remove: bool) -> None:
    async with local_bus.queue(name) as queue:
        await queue.push("due", at=1.0)
        await queue.start(remove=remove)
        if remove:
            await comes_true(lambda: queue.consumed)
        await queue.stop()

        stat = await queue.store.stat(queue._later_log)

        assert stat is not None
        assert stat.claimable == (0 if remove else 1)
