import asyncio
import logging

import pytest

from onebus import Bus
from onebus.errors import NotAttached
from onebus.events import Events
from onebus.message import Message
from tests.objects.hearing import comes_true, errors_of


async def test_plain_and_async_handlers_are_called_in_the_order_in_which_they_were_added() -> None:
    events, heard = Events(), list[str]()

    async def slow(value: str) -> None:
        await asyncio.sleep(0)
        heard.append(f"slow {value}")

    events.on("news", lambda value: heard.append(f"first {value}"))
    events.on("news", slow)
    events.on("news", lambda value: heard.append(f"last {value}"))

    await events.emit("news", "a")
    await events.emit("other", "b")

    assert heard == ["first a", "slow a", "last a"]


async def test_a_handler_for_once_is_called_once() -> None:
    events, heard = Events(), list[int]()
    events.once("news", heard.append)

    await events.emit("news", 1)
    await events.emit("news", 2)

    assert heard == [1]
    assert not events.has("news")


async def test_handlers_are_taken_off_one_by_one_or_all_at_once() -> None:
    events, heard = Events(), list[int]()
    first = events.on("news", lambda value: heard.append(-value))
    waiting = events.once("news", lambda value: heard.append(10 * value))
    events.on("news", lambda value: heard.append(100 * value))

    events.off("news", first)
    events.off("news", waiting)
    events.off("news", print)
    await events.emit("news", 1)
    events.off("news")
    events.off("unheard of")
    await events.emit("news", 2)

    assert heard == [100]


async def test_a_failing_handler_becomes_an_error_event_and_the_others_still_run() -> None:
    events, heard, errors = Events(), list[int](), list[Exception]()

    def fail(_: int) -> None:
        raise ValueError("plain")

    async def fail_later(_: int) -> None:
        raise ValueError("async")

    for handler in (fail, fail_later, heard.append):
        events.on("news", handler)
    events.on("error", errors.append)

    await events.emit("news", 1)

    assert heard == [1]
    assert [str(error) for error in errors] == ["plain", "async"]


async def test_a_failing_error_handler_is_logged_and_the_others_still_run(caplog: pytest.LogCaptureFixture) -> None:
    events, errors = Events(), list[Exception]()
    reason = ValueError("the reason")

    def fail(_: Exception) -> None:
        raise RuntimeError("broken handler")

    events.on("error", fail)
    events.on("error", errors.append)

    await events.emit("error", reason)

    assert errors == [reason]
    assert "broken handler" in caplog.text


async def test_an_error_that_nobody_hears_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "onebus"):
        await Events().emit("error", ValueError("unheard"))

    assert "unheard" in caplog.text


@pytest.mark.parametrize(("error", "is_traced"), [(ValueError("odd"), True), (NotAttached("gone"), False)])
async def test_only_an_unexpected_error_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception, is_traced: bool
) -> None:
    await Events().emit("error", error)

    assert str(error) in caplog.text
    assert [record.exc_info is not None for record in caplog.records] == [is_traced]


async def test_an_error_that_was_heard_once_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    events, errors = Events(), list[Exception]()
    events.once("error", errors.append)

    await events.emit("error", ValueError("heard"))

    assert len(errors) == 1
    assert caplog.text == ""


async def test_a_handler_that_waits_for_something_cancelled_fails_like_any_other() -> None:
    events, heard, errors = Events(), list[int](), list[BaseException]()

    async def wait_in_vain(_: int) -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        never.cancel()
        await never

    events.on("news", wait_in_vain)
    events.on("news", heard.append)
    events.on("error", errors.append)

    await events.emit("news", 1)

    assert heard == [1]
    assert [type(error) for error in errors] == [asyncio.CancelledError]


async def test_cancelling_whoever_emits_ends_the_handler() -> None:
    events, begun = Events(), asyncio.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    events.on("news", wait_for_ever)
    emitting = asyncio.create_task(events.emit("news"))
    await begun.wait()

    emitting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await emitting


async def test_a_failing_message_handler_never_ends_the_consumer(local_bus: Bus) -> None:
    queue = local_bus.queue("jobs")
    errors, heard = errors_of(queue), list[str]()

    def fail(message: Message) -> None:
        heard.append(message.data)
        raise ValueError(message.data)

    queue.on("message", fail)
    await queue.attach()
    await queue.start()
    for text in ("a", "b", "c"):
        await queue.push(text)

    await comes_true(lambda: len(heard) == 3)

    assert heard == ["a", "b", "c"]
    assert [str(error) for error in errors] == ["a", "b", "c"]
    assert queue.is_consuming
