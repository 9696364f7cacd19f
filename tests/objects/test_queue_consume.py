import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import AlreadyConsuming, InvalidArgument, NotAttached, StoreError
from onebus.message import Message
from onebus.objects.queue import Queue
from tests.objects.hearing import Heard, comes_true, data_of, errors_of, take, take_data


async def filled(bus: Bus, name: str, count: int) -> Queue:
    queue = bus.queue(name)
    await queue.attach()
    await queue.push_many(range(count))
    return queue


async def rest_of(queue: Queue) -> list[Any]:
    return await take_data(queue, await queue.count())


# How many


async def test_a_consumer_takes_as_many_as_it_wants_and_leaves_the_rest(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 5)
    heard = Heard(queue, "consuming", "error")

    assert await take_data(queue, 2) == [0, 1]
    assert not queue.is_consuming
    assert await take_data(queue, 1) == [2]

    assert heard.events == [("consuming", True), ("consuming", False)] * 2
    assert await queue.count() == 2
    async with other_bus.queue(name) as other:
        assert await rest_of(other) == [3, 4]


@pytest.mark.parametrize("limit", [-1, None])
async def test_a_negative_number_means_all_that_come(local_bus: Bus, name: str, limit: int | None) -> None:
    queue = await filled(local_bus, name, 3)
    taken = []

    async for message in queue.consume(max=limit):
        taken.append(message.data)
        if message.data == 2:
            queue.push(3)
        if message.data == 3:
            await queue.stop()

    assert taken == [0, 1, 2, 3]


async def test_whoever_wants_none_gets_none(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 3)

    assert await take_data(queue, 0) == []

    assert await queue.count() == 3


@pytest.mark.parametrize("prefetch", [1, 7, 1000])
async def test_the_order_is_kept_whatever_is_fetched_at_once(bus: Bus, name: str, prefetch: int) -> None:
    queue = await filled(bus, name, 100)

    assert await take_data(queue, 100, prefetch=prefetch) == list(range(100))


@pytest.mark.parametrize(
    "options",
    [
        {"remove": False, "reliable": True},
        {"remove": False, "lease": 5},
        {"index": 1},
        {"last": 3},
        {"lease": 0},
        {"lease": -1},
        {"max_attempts": 3},
        {"max_attempts": 0, "reliable": True},
        {"prefetch": 0},
    ],
)
async def test_options_that_make_no_sense_are_refused(local_bus: Bus, name: str, options: dict[str, Any]) -> None:
    async with local_bus.queue(name) as queue:
        with pytest.raises(InvalidArgument):
            queue.consume(**options)
        with pytest.raises(InvalidArgument):
            await queue.start(**options)

        assert not queue.is_consuming


# Ending


async def test_nothing_more_is_handed_over_once_a_handler_has_stopped(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 10)
    heard = Heard(queue, "consuming", "error")
    received: list[Message] = []

    async def stop(message: Message) -> None:
        received.append(message)
        await queue.stop()

    queue.on("message", stop)
    await queue.start(prefetch=10)
    await comes_true(lambda: heard.events == [("consuming", True), ("consuming", False)])

    assert data_of(received) == [0]
    assert queue.consumed == 1
    assert await rest_of(queue) == list(range(1, 10))


async def test_stopping_from_outside_ends_a_waiting_loop(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        loop = asyncio.create_task(take(queue, 1))
        await comes_true(lambda: queue.is_consuming)

        await queue.stop()

        assert await loop == []
        assert not queue.is_consuming
        await queue.stop()


async def test_leaving_the_loop_gives_back_what_was_fetched(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 100)
    async for message in queue.consume(prefetch=50):
        if message.data == 9:
            break

    await comes_true(lambda: not queue.is_consuming)

    async with other_bus.queue(name) as other:
        assert await rest_of(other) == list(range(10, 100))


async def test_a_loop_that_was_left_may_be_followed_by_another_at_once(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 20)
    taken = []

    for _ in range(20):
        async for message in queue.consume():
            taken.append(message.data)
            break

    assert taken == list(range(20))


async def test_an_exception_in_the_loop_gives_back_what_was_fetched(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 10)

    async def fail() -> None:
        async for _ in queue.consume(prefetch=10):
            raise ValueError("the loop")

    with pytest.raises(ValueError, match="the loop"):
        await fail()

    assert await take_data(queue, 9) == list(range(1, 10))


async def test_a_closed_iterator_has_given_everything_back(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 10)
    async with aclosing(queue.consume(prefetch=10)) as messages:
        assert (await anext(messages)).data == 0

    assert await queue.count() == 9
    assert not queue.is_consuming


async def test_cancelling_the_consuming_task_loses_nothing(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 300)
    taken: list[int] = []

    async def consume(count: int) -> None:
        wanted = len(taken) + count
        async for message in queue.consume(prefetch=7):
            taken.append(message.data)
            if len(taken) >= wanted:
                consuming.cancel()
                if count % 2:
                    await asyncio.sleep(0)

    for count in range(1, 20):
        consuming = asyncio.create_task(consume(count))
        await asyncio.gather(consuming, return_exceptions=True)
        assert consuming.cancelled()

    assert taken + await take_data(queue, 300 - len(taken)) == list(range(300))


async def test_detaching_while_consuming_loses_nothing(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 200)
    heard = Heard(queue, "consuming", "detaching", "detached", "error")
    taken: list[int] = []
    queue.on("message", lambda message: taken.append(message.data))
    await queue.start(prefetch=20)
    await comes_true(lambda: len(taken) > 30)

    await queue.detach()

    assert heard.events == [("consuming", True), "detaching", ("consuming", False), "detached"]
    async with other_bus.queue(name) as other:
        assert taken + await rest_of(other) == list(range(200))


async def test_stopping_while_a_claim_is_in_flight_loses_and_doubles_nothing(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    queue, taken = bus.queue(name), list[int]()
    queue.on("message", lambda message: taken.append(message.data))
    await queue.attach()
    async with other_bus.queue(name) as producer:
        for number in range(2000):
            producer.push(number)
            if number % 40 == 0:
                await queue.start()
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                await queue.stop()

    rest = await take_data(queue, 2000 - len(taken))

    assert sorted(taken + rest) == list(range(2000))
    assert await queue.count() == 0


async def test_a_queue_that_is_consumed_again_and_again_hands_over_in_order(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 200)
    taken = []

    for count in range(1, 20):
        taken += await take_data(queue, count)

    assert taken == list(range(190))


# Who


async def test_an_object_consumes_once_at_a_time(local_bus: Bus, name: str) -> None:
    queue = await filled(local_bus, name, 3)
    await queue.start()

    with pytest.raises(AlreadyConsuming):
        await queue.start()
    with pytest.raises(AlreadyConsuming):
        await take(queue, 1)

    assert queue.is_consuming
    await comes_true(lambda: queue.consumed == 3)


async def test_a_loop_may_begin_while_the_last_one_is_being_stopped(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 10)
    await queue.start(max=3, prefetch=10)
    await comes_true(lambda: queue.consumed >= 1)

    stopping = asyncio.create_task(queue.stop())
    await asyncio.sleep(0)
    taken = await take_data(queue, 10 - 3)
    await stopping

    assert taken == sorted(taken)


async def test_consumers_share_the_messages(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.queue(name) as one, other_bus.queue(name) as two, bus.queue(name) as three:
        taken: dict[int, list[int]] = {1: [], 2: [], 3: []}
        for number, queue in ((1, one), (2, two), (3, three)):
            queue.on("message", lambda message, number=number: taken[number].append(message.data))
            await queue.start()

        for number in range(300):
            one.push(number)

        await comes_true(lambda: sum(map(len, taken.values())) == 300)
        assert sorted(number for numbers in taken.values() for number in numbers) == list(range(300))
        for numbers in taken.values():
            assert numbers == sorted(numbers)


async def test_a_slow_consumer_leaves_the_rest_to_its_peers(bus: Bus, other_bus: Bus, name: str) -> None:
    slow = await filled(bus, name, 1)
    stuck = asyncio.Event()
    slow.on("message", lambda _: stuck.wait())
    await slow.start()
    await comes_true(lambda: slow.consumed == 1)

    async with other_bus.queue(name) as quick:
        await quick.push_many(range(1, 50))

        assert await take_data(quick, 49) == list(range(1, 50))
    stuck.set()


async def test_large_messages_come_without_a_pause(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        for number in range(0, 12, 2):
            await queue.push([number, "x"])
            await queue.push([number + 1, "x" * 1_000_000])
        begun = asyncio.get_running_loop().time()

        taken = await take_data(queue, 12)

        assert [data[0] for data in taken] == list(range(12))
        assert asyncio.get_running_loop().time() - begun < 2


async def test_messages_that_need_no_acknowledgement_ignore_one_and_refuse_more(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 1)

    (message,) = await take(queue, 1)

    await message.ack()
    await queue.ack(message.id)
    for call in (message.release(), message.extend(), message.reject("bad")):
        with pytest.raises(NotAttached, match="reliable=True"):
            await call
    assert repr(message) == "<Message 1: b'0'>"


# Before attaching


async def test_a_consumer_that_is_stopped_before_its_queue_is_attached_has_never_begun(name: str) -> None:
    queue = Bus("memory://").queue(name)
    heard = Heard(queue, "consuming", "error")
    await queue.start()

    await queue.stop()

    for _ in range(5):
        await asyncio.sleep(0)
    assert heard.events == []
    assert not queue.is_consuming


async def test_a_loop_waits_for_its_queue_to_be_attached(bus: Bus, other_bus: Bus, name: str) -> None:
    await filled(other_bus, name, 3)
    queue = bus.queue(name)
    waiting = asyncio.create_task(take_data(queue, 3))
    await asyncio.sleep(0)
    assert not waiting.done()

    await queue.attach()

    assert await waiting == [0, 1, 2]


async def test_a_store_that_refuses_does_not_end_the_consumer(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = local_bus.queue(name)
    errors, taken = errors_of(queue), list[str]()
    queue.on("message", lambda message: taken.append(message.data))
    await queue.attach()

    async def refuse(*_: Any, **__: Any) -> Any:
        raise StoreError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(queue.store, "claim", refuse)
        await queue.start()
        await comes_true(lambda: errors)
    await queue.push("a")

    await comes_true(lambda: taken)
    assert taken == ["a"]
    assert {str(error) for error in errors} == {"not now"}


# Leaving messages where they are


async def test_messages_can_be_read_without_removing_them(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 4)
    async with other_bus.queue(name) as reader:
        read = await take(reader, 4, remove=False)

        assert [(message.id, message.data) for message in read] == [(1, 0), (2, 1), (3, 2), (4, 3)]
        assert await reader.count() == 4
        assert await take_data(reader, 2, remove=False, index=1) == [1, 2]
        assert await take_data(reader, 4) == [0, 1, 2, 3]
        assert await queue.count() == 0


async def test_a_reader_sees_what_comes_later(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 2)
    async with other_bus.queue(name) as reader:
        reading = asyncio.create_task(take_data(reader, 5, remove=False, index=1))
        await comes_true(lambda: reader.consumed == 1)

        await queue.push_many([2, 3])
        queue.push(4)
        queue.push(5)

        assert await reading == [1, 2, 3, 4, 5]


async def test_a_reader_can_be_stopped(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, 2)
    heard = Heard(queue, "consuming", "error")
    await queue.start(remove=False)
    await comes_true(lambda: queue.consumed == 2)

    await queue.stop()

    assert heard.events == [("consuming", True), ("consuming", False)]
    assert await queue.count() == 2
