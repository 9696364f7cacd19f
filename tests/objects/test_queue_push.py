import asyncio
import gc
import time
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import (
    InvalidArgument,
    NotAttached,
    NotSerializable,
    Overloaded,
    PayloadTooLarge,
    StoreFull,
    StoreUnavailable,
)
from onebus.log.batch import Kind
from onebus.objects.queue import MAX_EARLY_PUSHES
from tests.clock import FakeClock
from tests.objects.hearing import Heard, comes_true, data_of, errors_of, take, take_data


async def test_a_producer_pushes_and_leaves_before_the_consumer_comes(bus: Bus, other_bus: Bus, name: str) -> None:
    producer, consumer = bus.queue(name), other_bus.queue(name)
    await producer.attach()
    pushed = producer.push("hello")
    await producer.detach()
    assert await pushed == 1

    assert await consumer.attach() is True

    assert await take_data(consumer, 1) == ["hello"]


@pytest.mark.parametrize("producer_first", [True, False])
async def test_producer_and_consumer_attach_in_any_order_before_the_push(
    bus: Bus, other_bus: Bus, name: str, producer_first: bool
) -> None:
    producer, consumer = bus.queue(name), other_bus.queue(name)
    heard = Heard(consumer, "message", "error")
    for queue in (producer, consumer) if producer_first else (consumer, producer):
        await queue.attach()
    await consumer.start()

    await producer.push("hello")

    await comes_true(lambda: heard.events)
    ((event, message),) = heard.events
    assert (event, message.data, message.id) == ("message", "hello", 1)


async def test_what_is_pushed_and_consumed_before_attaching_is_remembered_in_order(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    producer, consumer = bus.queue(name), other_bus.queue(name)
    received: list[Any] = []
    consumer.on("message", lambda message: received.append(message.data))
    await consumer.start()
    early = [producer.push(number) for number in range(5)]
    many = asyncio.create_task(producer.push_many([10, 11]))
    await asyncio.sleep(0)

    await producer.attach()
    late = producer.push(5)
    await consumer.attach()

    assert [await pushed for pushed in early] == [1, 2, 3, 4, 5]
    # Whoever waits in another task may be woken before or after the next push.
    later = {await late: 5, **dict(zip(await many, (10, 11), strict=True))}
    assert sorted(later) == [6, 7, 8]
    await comes_true(lambda: len(received) == 8)
    assert received == [0, 1, 2, 3, 4, *(later[message_id] for message_id in (6, 7, 8))]


async def test_early_pushes_keep_their_order_even_if_they_have_to_wait(local_bus: Bus, name: str) -> None:
    queue = local_bus.queue(name)
    large = "x" * 1_000_000
    for number in range(40):
        queue.push([number, large])

    await queue.attach()
    for number in range(40, 45):
        await queue.push([number, large])

    assert [data[0] for data in await take_data(queue, 45)] == list(range(45))


async def test_an_early_push_that_was_given_up_is_not_stored(local_bus: Bus, name: str) -> None:
    queue = local_bus.queue(name)
    waiting = asyncio.ensure_future(queue.push("never"))
    queue.push("kept")
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await queue.attach()

    assert await take_data(queue, 1) == ["kept"]
    assert await queue.count() == 0


@pytest.mark.parametrize("options", [{}, {"message_id": "n"}])
async def test_early_pushes_fail_when_the_bus_disconnects(name: str, options: dict[str, Any]) -> None:
    async with Bus("memory://") as bus:
        queue = bus.queue(name)
        errors = errors_of(queue)
        unheard = queue.push("a", **options)
        heard = asyncio.ensure_future(queue.push("b", **options))
        await asyncio.sleep(0)

    with pytest.raises(NotAttached):
        await heard
    assert [type(error) for error in errors] == [NotAttached]
    with pytest.raises(NotAttached):
        await unheard


async def test_too_many_early_pushes_are_refused(local_bus: Bus, name: str) -> None:
    queue = local_bus.queue(name)
    for number in range(MAX_EARLY_PUSHES):
        queue.push(number)

    with pytest.raises(Overloaded, match="Attach it"):
        queue.push("one too many")

    await queue.attach()
    assert await queue.push("now") == MAX_EARLY_PUSHES + 1


async def test_an_early_push_that_can_never_be_stored_is_refused_at_once(name: str) -> None:
    async with Bus("memory://", max_message_bytes=100) as bus:
        queue = bus.queue(name)
        queue.push("fine")

        with pytest.raises(PayloadTooLarge):
            queue.push("x" * 101)
        with pytest.raises(PayloadTooLarge):
            await queue.push_many(["y" * 101])

        await queue.attach()
        assert await take_data(queue, 1) == ["fine"]


async def test_pushes_that_nobody_awaits_are_stored_in_order(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        for number in range(3000):
            queue.push(number)

    async with other_bus.queue(name) as consumer:
        assert await take_data(consumer, 3000) == list(range(3000))


async def test_awaited_pushes_give_ids_in_order(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        assert await asyncio.gather(*(queue.push(number) for number in range(100))) == list(range(1, 101))
        assert await queue.push("next") == 101
        assert await queue.push_many(["a", b"b", {"c": 1}]) == [102, 103, 104]
        assert await queue.push_many([]) == []


async def test_data_comes_back_as_what_it_was(bus: Bus, other_bus: Bus, name: str) -> None:
    sent = [
        "text",
        "ünï\U0001f600\0",
        "",
        b"bytes\0\xff",
        b"",
        1,
        1.5,
        True,
        None,
        [1, "a", None],
        {"a": {"b": []}},
        "1",
    ]
    async with bus.queue(name) as queue:
        for data in sent:
            queue.push(data)
        await queue.push_many([*sent, bytearray(b"array"), memoryview(b"view")])

    async with other_bus.queue(name) as consumer:
        received = await take_data(consumer, 2 * len(sent) + 2)

    assert received == [*sent, *sent, b"array", b"view"]
    assert [type(data) for data in received[: len(sent)]] == [type(data) for data in sent]


async def test_a_message_tells_where_it_comes_from(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        before = time.time()
        queue.push("plain")
        await queue.push({"a": 1}, key="tenant", headers={"trace": "42", "empty": ""})
        await queue.push(b"x", key=b"\xff\0")

        plain, full, binary = await take(queue, 3)

    assert (plain.id, plain.data, plain.kind, plain.raw) == (1, "plain", Kind.TEXT, b"plain")
    assert (plain.key, dict(plain.headers), plain.attempts) == (None, {}, 1)
    assert before - 1 < plain.timestamp < time.time() + 1
    assert (full.id, full.data, full.kind, full.key) == (2, {"a": 1}, Kind.JSON, b"tenant")
    assert dict(full.headers) == {"trace": "42", "empty": ""}
    assert (binary.key, binary.kind) == (b"\xff\0", Kind.BYTES)


async def test_the_time_of_a_push_is_that_of_the_bus(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    async with timed_bus.queue(name) as queue:
        await queue.push("a")
        clock.advance(10)
        await queue.push("b", key="k")
        a, b = await take(queue, 2)

    assert b.time_ms == clock.now_ms
    assert b.timestamp - a.timestamp == pytest.approx(10)


@pytest.mark.parametrize("data", [object(), {1, object()}, "\ud800", {"a": [lambda: None]}])
async def test_what_cannot_be_written_is_refused_at_once(local_bus: Bus, name: str, data: object) -> None:
    async with local_bus.queue(name) as queue:
        with pytest.raises(NotSerializable):
            queue.push(data)
        with pytest.raises(NotSerializable):
            await queue.push_many(["fine", data])

        assert await queue.count() == 0


@pytest.mark.parametrize(
    "options",
    [{"headers": {"onebus-due": "1"}}, {"delay": -1}, {"delay": 1, "at": 5}, {"message_id": "a", "once_for": 0}],
)
async def test_options_that_make_no_sense_are_refused_at_once(
    local_bus: Bus, name: str, options: dict[str, Any]
) -> None:
    async with local_bus.queue(name) as queue:
        with pytest.raises(InvalidArgument):
            queue.push("a", **options)


async def test_a_message_over_the_limit_is_refused_at_once(name: str) -> None:
    async with Bus("memory://", max_message_bytes=100) as bus, bus.queue(name) as queue:
        await queue.push("x" * 100)
        large: list[tuple[str, dict[str, Any]]] = [
            ("x" * 101, {}),
            ("x" * 50, {"key": "k" * 51}),
            ("", {"headers": {"h": "x" * 100}}),
            ("x" * 101, {"delay": 1}),
            ("x" * 101, {"message_id": "n"}),
        ]
        for text, options in large:
            with pytest.raises(PayloadTooLarge, match="max_message_bytes"):
                queue.push(text, **options)

        assert await queue.count() == 1


class SlowAppends:
    """Lets the appends of a queue's store wait until the test opens the gate."""

    def __init__(self, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = asyncio.Event()
        append = queue.store.append

        async def slow(*values: Any, **options: Any) -> Any:
            await self.gate.wait()
            return await append(*values, **options)

        monkeypatch.setattr(queue.store, "append", slow)


async def test_pushes_wait_while_more_waits_than_may_wait(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_bus.queue(name) as queue:
        slow = SlowAppends(queue, monkeypatch)
        large = "x" * 1_000_000
        pushing = [asyncio.ensure_future(queue.push([number, large])) for number in range(30)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert queue._writer._waiting_bytes < 20_000_000

        slow.gate.set()

        assert await asyncio.gather(*pushing) == list(range(1, 31))
        assert [data[0] for data in await take_data(queue, 30)] == list(range(30))


async def refuse_appends(*_: Any, **__: Any) -> int:
    raise StoreFull("no room left")


async def test_a_failed_push_raises_when_it_is_awaited(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_bus.queue(name) as queue:
        errors = errors_of(queue)
        monkeypatch.setattr(queue.store, "append", refuse_appends)

        with pytest.raises(StoreFull):
            await queue.push("plain")
        with pytest.raises(StoreFull):
            await queue.push("keyed", key="k")
        with pytest.raises(StoreFull):
            await queue.push("named", message_id="n")
        with pytest.raises(StoreFull):
            await queue.push_many(["many"])

        gc.collect()
        await asyncio.sleep(0)
        assert errors == []
        assert queue.pushed == 0


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"delay": 1}, {"message_id": "n"}])
@pytest.mark.parametrize("early", [True, False])
async def test_a_failed_push_that_nobody_awaits_is_an_error_event(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], early: bool
) -> None:
    queue = local_bus.queue(name)
    errors = errors_of(queue)
    monkeypatch.setattr(queue.store, "append", refuse_appends)
    if early:
        queue.push("a", **options)
        await queue.attach()
    else:
        await queue.attach()
        queue.push("a", **options)
    gc.disable()
    try:
        await comes_true(lambda: errors, deadline_seconds=5)
    finally:
        gc.enable()

    assert [str(error) for error in errors] == ["no room left"]
    await queue.detach()
    assert len(errors) == 1


@pytest.mark.parametrize("options", [{}, {"message_id": "n"}])
async def test_a_push_that_fails_while_detaching_is_an_error_event(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    queue = local_bus.queue(name)
    errors = errors_of(queue)
    await queue.attach()
    monkeypatch.setattr(queue.store, "append", refuse_appends)

    queue.push("a", **options)
    await queue.detach()

    await comes_true(lambda: errors, deadline_seconds=5)
    assert [str(error) for error in errors] == ["no room left"]


async def test_queues_do_not_mix(bus: Bus, other_bus: Bus, name: str) -> None:
    queues = [bus.queue(f"{name}-{number}") for number in range(20)]
    for queue in queues:
        await queue.attach()
    for number in range(100):
        for index, queue in enumerate(queues):
            queue.push(f"{index}:{number}")

    for index in range(20):
        async with other_bus.queue(f"{name}-{index}") as consumer:
            assert await take_data(consumer, 100) == [f"{index}:{number}" for number in range(100)]


async def test_a_cancelled_push_disturbs_nobody(bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue:
        pushing = [asyncio.ensure_future(queue.push(number)) for number in range(10)]
        await asyncio.sleep(0)
        pushing[3].cancel()

        results = await asyncio.gather(*pushing, return_exceptions=True)

        assert all(isinstance(result, int) for number, result in enumerate(results) if number != 3)
        received = data_of(await take(queue, await queue.count()))
        assert [number for number in received if number != 3] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


async def test_a_store_that_is_away_fails_a_push_after_the_deadline(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_bus.queue(name) as queue:

        async def away(*_: Any, **__: Any) -> int:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patched:
            patched.setattr(queue.store, "append", away)
            with pytest.raises(StoreUnavailable):
                await queue.push("lost")

        assert await queue.push("stored") == 1
