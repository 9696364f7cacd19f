import asyncio
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import AlreadyAttached, InvalidArgument, InvalidName, NotAttached, StoreError, StoreUnavailable
from tests.clock import FakeClock
from tests.eventually import eventually
from tests.objects.conftest import Connect
from tests.objects.hearing import Heard, comes_true, errors_of, take_data

LIFE = ("attaching", "attached", "detaching", "detached", "closed", "error")


# Attaching and detaching


async def test_two_clients_hear_that_they_attach_and_detach(bus: Bus, other_bus: Bus, name: str) -> None:
    one, two = bus.queue(name), other_bus.queue(name)
    first, second = Heard(one, *LIFE), Heard(two, *LIFE)

    assert await one.attach() is False
    assert await two.attach() is True
    assert one.is_attached
    await one.detach()
    await two.detach()

    assert not one.is_attached
    assert first.events == ["attaching", ("attached", False), "detaching", "detached"]
    assert second.events == ["attaching", ("attached", True), "detaching", "detached"]


async def test_a_queue_is_attached_as_a_context(local_bus: Bus, name: str) -> None:
    async with local_bus.queue(name) as queue:
        assert queue.is_attached
    assert not queue.is_attached


async def test_attaching_twice_is_an_error_and_changes_nothing(bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    heard = Heard(queue, *LIFE)
    await queue.attach()

    with pytest.raises(AlreadyAttached, match=f"cannot attach to queue '{name}': already attached"):
        await queue.attach()

    assert queue.is_attached
    assert heard.events == ["attaching", ("attached", False)]


async def test_attaching_while_attaching_is_an_error_too(bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    heard = Heard(queue, *LIFE)

    results = await asyncio.gather(queue.attach(), queue.attach(), return_exceptions=True)

    assert results[0] is False
    assert isinstance(results[1], AlreadyAttached)
    await queue.detach()
    await queue.detach()
    assert heard.events == ["attaching", ("attached", False), "detaching", "detached"]


async def test_a_queue_whose_attaching_fails_can_be_attached_later(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = local_bus.queue(name)

    async def refuse(*_: Any, **__: Any) -> bool:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(queue.store, "touch", refuse)
        with pytest.raises(StoreUnavailable):
            await queue.attach()
    assert not queue.is_attached

    assert await queue.attach() is False


async def test_an_object_attaches_again_and_again(bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    for number in range(3):
        assert await queue.attach() is (number > 0)
        queue.push(number)
        await queue.detach()

    await queue.attach()

    assert await take_data(queue, 3) == [0, 1, 2]
    assert queue.pushed == 3


async def test_a_detach_that_is_cancelled_leaves_a_queue_that_can_be_attached_again(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = local_bus.queue(name)
    await queue.attach()
    store = queue.store
    append, gate, tried = store.append, asyncio.Event(), asyncio.Event()

    async def slow(*values: Any, **options: Any) -> int:
        tried.set()
        await gate.wait()
        return await append(*values, **options)

    monkeypatch.setattr(store, "append", slow)
    queue.push("on its way")
    detaching = asyncio.create_task(queue.detach())
    await tried.wait()

    detaching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await detaching
    gate.set()
    assert await queue.attach() is True
    assert await take_data(queue, 1) == ["on its way"]


async def test_every_bus_detach_waits_for_a_detach_that_has_begun(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = []
    async with Bus(local_bus.url) as bus:
        queue = bus.queue(name)
        queue.on("error", errors.append)
        await queue.attach()
        append, tried = queue.store.append, asyncio.Event()

        async def slow(*values: Any, **options: Any) -> int:
            tried.set()
            for _ in range(20):
                await asyncio.sleep(0)
            return await append(*values, **options)

        monkeypatch.setattr(queue.store, "append", slow)
        queue.push("on its way")
        detaching = asyncio.create_task(queue.detach())
        await tried.wait()

    await detaching
    assert errors == []
    async with local_bus.queue(name) as rest:
        assert await take_data(rest, 1) == ["on its way"]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf")])
async def test_a_time_to_live_that_makes_no_sense_is_refused(local_bus: Bus, name: str, ttl: float) -> None:
    with pytest.raises(InvalidArgument, match="ttl"):
        local_bus.queue(name, ttl=ttl)
    with pytest.raises(InvalidArgument, match="ttl"):
        await local_bus.queue(name).attach(ttl=ttl)


@pytest.mark.parametrize("name", ["", "a|b", "a\nb", "x" * 300])
async def test_a_name_that_no_store_can_keep_is_refused(local_bus: Bus, name: str) -> None:
    with pytest.raises(InvalidName):
        local_bus.queue(name)


# Time to live


async def test_a_queue_expires_after_its_time_without_attachments_and_not_before(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    queue = timed_bus.queue(name, ttl=60)
    await queue.attach()
    await queue.push("a")
    await queue.metadata("colour", "red")
    await queue.detach()

    clock.advance(59.9)
    assert await queue.exists()
    assert await queue.metadata("colour") == "red"
    clock.advance(0.2)

    assert not await queue.exists()
    assert await queue.count() == 0
    assert await queue.ttl() is None
    assert await queue.metadata("colour") is None
    assert await queue.attach() is False
    assert await queue.count() == 0


async def test_attaching_again_in_time_keeps_the_queue(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    queue = timed_bus.queue(name, ttl=60)
    async with queue:
        await queue.push("a")

    for _ in range(3):
        clock.advance(50)
        assert await queue.attach() is True
        await queue.detach()
    clock.advance(50)

    async with queue:
        assert await take_data(queue, 1) == ["a"]


async def test_a_queue_lives_as_long_as_somebody_is_attached(bus: Bus, name: str) -> None:
    queue = bus.queue(name, ttl=0.3)
    await queue.attach()
    await queue.push("a")
    await queue.metadata("colour", "red")
    begun = asyncio.get_running_loop().time()

    await comes_true(lambda: asyncio.get_running_loop().time() > begun + 0.9)

    assert await queue.count() == 1
    assert await queue.metadata("colour") == "red"


async def test_all_who_attach_use_the_time_to_live_of_the_creator(bus: Bus, other_bus: Bus, name: str) -> None:
    one, two = bus.queue(name, ttl=100), other_bus.queue(name)
    await asyncio.gather(one.attach(), two.attach(ttl=200))

    ttl = await one.ttl()

    assert ttl in (100, 200)
    assert await two.ttl() == ttl
    for queue in (one, two):
        queue._beat.set()
        await queue.push("a")
        await queue.detach()
    assert await one.ttl() == ttl
    assert await other_bus.queue(name, ttl=5).attach() is True
    assert await one.ttl() == ttl


async def test_an_object_creates_its_next_queue_with_its_own_time_to_live(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    async with timed_bus.queue(name, ttl=100):
        pass
    queue = timed_bus.queue(name, ttl=200)
    async with queue:
        assert await queue.ttl() == 100
    clock.advance(101)

    await queue.attach()

    assert await queue.ttl() == 200


async def test_the_heartbeat_outlives_a_store_that_refuses(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = local_bus.queue(name)
    errors = errors_of(queue)
    await queue.attach()
    touch, touched, refused = queue.store.touch, asyncio.Event(), asyncio.Event()

    async def refuse(*_: Any, **__: Any) -> bool:
        refused.set()
        raise StoreError("not now")

    async def note(*values: Any, **options: Any) -> bool:
        touched.set()
        return await touch(*values, **options)

    monkeypatch.setattr(queue.store, "touch", refuse)
    queue._beat.set()
    await refused.wait()
    await comes_true(lambda: errors)
    monkeypatch.setattr(queue.store, "touch", note)
    queue._beat.set()

    async with asyncio.timeout(5):
        await touched.wait()
    assert [str(error) for error in errors] == ["not now"]


# Asking


async def test_a_queue_can_be_asked_without_being_attached(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = other_bus.queue(name)
    assert await queue.exists() is False
    assert await queue.count() == 0
    assert await queue.ttl() is None
    assert await queue.metadata() == {}
    assert await queue.metadata("colour") is None
    await queue.flush()
    assert await queue.exists() is False

    async with bus.queue(name, ttl=42) as producer:
        await producer.push_many(["a", "b"])
        await queue.metadata("colour", "red")

        assert await queue.exists() is True
        assert await queue.count() == 2
        assert await queue.ttl() == 42
        assert await producer.metadata("colour") == "red"
        await queue.flush()
        assert await queue.count() == 0


async def test_asking_leaves_nothing_behind(local_bus: Bus, name: str) -> None:
    queue = local_bus.queue(name)
    listeners = len(queue.store.health._listeners)

    for _ in range(100):
        await queue.exists()
        await queue.count()

    assert len(queue.store.health._listeners) == listeners


async def test_messages_are_counted_and_flushed(bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    await queue.attach()
    assert [await queue.push(text) for text in "abc"] == [1, 2, 3]
    assert await queue.count() == 3
    await queue.detach()
    await queue.flush()

    assert await queue.attach() is True

    assert await queue.count() == 0
    assert await queue.push("d") == 4
    assert await take_data(queue, 1) == ["d"]


async def test_a_flush_takes_along_what_is_on_its_way_and_what_is_delayed(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    queue = timed_bus.queue(name)
    await queue.attach()
    await queue.push("later", delay=5)
    for number in range(100):
        queue.push(number)

    await queue.flush()
    clock.advance(6)
    await queue.push("after")

    assert await take_data(queue, 1) == ["after"]
    assert await queue.count() == 0


async def test_a_queue_counts_what_this_object_pushed_and_consumed(bus: Bus, other_bus: Bus, name: str) -> None:
    producer, consumer = bus.queue(name), other_bus.queue(name)
    await producer.attach()
    await consumer.attach()
    await producer.push_many(range(5))
    await producer.push("six")

    await take_data(consumer, 2)
    await take_data(consumer, 1)

    assert (producer.pushed, producer.consumed) == (6, 0)
    assert (consumer.pushed, consumer.consumed) == (0, 3)


# Metadata


async def test_anything_that_json_can_say_is_noted_on_a_queue(bus: Bus, other_bus: Bus, name: str) -> None:
    queue, other = bus.queue(name), other_bus.queue(name)
    await queue.attach()

    await queue.metadata("colour", "red")
    await queue.metadata({"size": 3, "tags": ["a", {"b": None}], "nothing": None})

    assert await other.metadata("colour") == "red"
    assert await other.metadata("size") == 3
    assert await other.metadata("tags") == ["a", {"b": None}]
    assert await other.metadata("nothing") is None
    assert await other.metadata("unknown") is None
    noted = await other.metadata()
    assert noted == {"colour": "red", "size": 3, "tags": ["a", {"b": None}], "nothing": None, "ttl": 30.0}


async def test_metadata_that_cannot_be_kept_is_refused(local_bus: Bus, name: str) -> None:
    async with local_bus.queue(name) as queue:
        for key, value in (("ttl", 5), ("", 1), ("a", object())):
            with pytest.raises(InvalidArgument):
                await queue.metadata(key, value)


async def test_metadata_noted_without_attaching_lives_as_long_as_the_queue(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    async with timed_bus.queue(name, ttl=100):
        pass
    queue = timed_bus.queue(name)
    await queue.metadata("colour", "red")

    clock.advance(99)

    assert await queue.exists()
    assert await queue.metadata("colour") == "red"


# Closing


async def test_closing_ends_the_queue_for_everybody(bus: Bus, other_bus: Bus, name: str) -> None:
    queue, other, same = bus.queue(name), other_bus.queue(name), bus.queue(name)
    unrelated = other_bus.queue(f"{name}-other")
    heards = [Heard(one, "closed", "error") for one in (queue, other, same)]
    for one in (queue, other, same, unrelated):
        await one.attach()
    await queue.push("a")
    await queue.push("b", delay=60)
    await queue.metadata("colour", "red")
    await other.start(max=0)

    await queue.close()

    for heard in heards:
        await heard.until("closed")
    assert [one.is_attached for one in (queue, other, same, unrelated)] == [False, False, False, True]
    assert not await queue.exists()
    assert await queue.metadata() == {}
    assert await other.attach() is False
    assert await other.count() == 0
    assert await other.push("new") == 1


async def test_closing_ends_the_consumers_of_everybody(bus: Bus, other_bus: Bus, name: str) -> None:
    queue, other = bus.queue(name), other_bus.queue(name)
    heard = Heard(other, "consuming", "closed", "error")
    await queue.attach()
    await other.attach()
    await other.start(reliable=True)
    await queue.push("a")
    await comes_true(lambda: other.consumed == 1)

    await queue.close()

    await heard.until(("consuming", True), ("consuming", False), "closed")
    assert not await queue.exists()


async def test_only_an_attached_queue_can_be_closed(local_bus: Bus, name: str) -> None:
    with pytest.raises(NotAttached, match=f"error closing queue '{name}': not attached"):
        await local_bus.queue(name).close()


async def test_what_was_on_its_way_to_a_closed_queue_does_not_stay_for_ever(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    other = (await connect(clock=clock)).queue(name)
    queue = timed_bus.queue(name)
    await queue.attach()
    await other.attach()
    closed = Heard(other, "closed")

    closing = asyncio.create_task(queue.close())
    numbers = 0
    while not closed.events:
        numbers += 1
        other.push(numbers)
        await asyncio.sleep(0)
    await closing
    await other._writer.flush()
    clock.advance(31)

    async def is_gone() -> bool:
        return not await queue.exists()

    await eventually(is_gone)
