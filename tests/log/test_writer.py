import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from onebus.errors import LogFull, Overloaded, PayloadTooLarge, StoreClosed, StoreUnavailable
from onebus.log.batch import Entry, Kind, decode
from onebus.log.writer import LogWriter, WriterLimits

Append = Callable[[str, bytes], Awaitable[int]]


class SlowLog:
    """Stores batches when the test lets it, one permit per batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[bytes]]] = []
        self.kinds: list[list[Kind]] = []
        self.permits = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self._last_ids: dict[str, int] = {}

    async def append(self, log: str, blob: bytes) -> int:
        payloads = decode(blob).payloads()
        kinds = [entry.kind for entry in decode(blob).entries()]
        await self.permits.acquire()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        first_id = self._last_ids.get(log, 0) + 1
        self._last_ids[log] = first_id + len(payloads) - 1
        self.batches.append((log, payloads))
        self.kinds.append(kinds)
        return first_id

    def let(self, batches: int) -> None:
        for _ in range(batches):
            self.permits.release()


@pytest.fixture
async def slow() -> SlowLog:
    return SlowLog()


def writer_to(slow: SlowLog, limits: WriterLimits | None = None) -> LogWriter:
    return LogWriter(slow.append, clock=lambda: 1, limits=limits)


async def turn() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


def start(writer: LogWriter, *texts: bytes, log: str = "log") -> list[asyncio.Task[int]]:
    return [asyncio.create_task(writer.append(log, Entry(text))) for text in texts]


async def test_appends_of_one_turn_become_one_batch(slow: SlowLog) -> None:
    slow.let(1)

    ids = await asyncio.gather(*start(writer_to(slow), b"a", b"b", b"c"))

    assert ids == [1, 2, 3]
    assert slow.batches == [("log", [b"a", b"b", b"c"])]


async def test_appends_made_while_a_batch_is_in_flight_become_the_next_batch(slow: SlowLog) -> None:
    writer = writer_to(slow)
    first = start(writer, b"a")
    await turn()
    later = start(writer, b"b") + start(writer, b"c")
    await turn()
    slow.let(2)

    assert await asyncio.gather(*first, *later) == [1, 2, 3]
    assert [payloads for _, payloads in slow.batches] == [[b"a"], [b"b", b"c"]]


async def test_each_log_has_its_own_batches(slow: SlowLog) -> None:
    writer = writer_to(slow)
    tasks = start(writer, b"a", log="one") + start(writer, b"b", log="two")
    slow.let(2)

    assert await asyncio.gather(*tasks) == [1, 1]


async def test_many_callers_beyond_the_bound_wait_their_turn_and_none_is_dropped(slow: SlowLog) -> None:
    slow.let(1000)
    writer = writer_to(slow, WriterLimits(max_batch_messages=10))

    ids = await asyncio.gather(*start(writer, *(b"%d" % number for number in range(995))))

    assert ids == list(range(1, 996))
    assert {len(payloads) for _, payloads in slow.batches} == {10, 5}
    assert [payload for _, payloads in slow.batches for payload in payloads] == [b"%d" % n for n in range(995)]


async def test_a_batch_is_closed_before_it_exceeds_its_bytes(slow: SlowLog) -> None:
    slow.let(10)
    writer = writer_to(slow, WriterLimits(max_batch_bytes=250))

    await asyncio.gather(*start(writer, *[bytes(100)] * 5))

    assert [len(payloads) for _, payloads in slow.batches] == [2, 2, 1]


async def test_a_failed_batch_fails_exactly_its_own_callers(slow: SlowLog) -> None:
    writer = writer_to(slow)
    slow.failure = StoreUnavailable("gone")
    unlucky = start(writer, b"a", b"b")
    await turn()
    lucky = start(writer, b"c")
    slow.let(2)

    results = await asyncio.gather(*unlucky, *lucky, return_exceptions=True)

    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable, int]
    assert slow.batches == [("log", [b"c"])]


async def test_a_caller_cancelled_while_its_batch_is_open_is_not_stored(slow: SlowLog) -> None:
    writer = writer_to(slow)
    first = start(writer, b"a")
    await turn()
    b, c = start(writer, b"b", b"c")
    await turn()
    b.cancel()
    await turn()
    slow.let(2)

    assert await asyncio.gather(*first, c) == [1, 2]
    assert [payloads for _, payloads in slow.batches] == [[b"a"], [b"c"]]


async def test_a_caller_cancelled_in_flight_does_not_disturb_the_others(slow: SlowLog) -> None:
    writer = writer_to(slow)
    a, b = start(writer, b"a", b"b")
    await turn()
    a.cancel()
    await turn()
    slow.let(1)

    assert await b == 2
    assert slow.batches == [("log", [b"a", b"b"])]


async def test_many_messages_of_one_call_get_ascending_ids_over_several_batches(slow: SlowLog) -> None:
    slow.let(10)
    writer = writer_to(slow, WriterLimits(max_batch_messages=4))

    ids = await writer.append_many("log", [Entry(b"%d" % number) for number in range(10)])

    assert ids == list(range(1, 11))
    assert await writer.append_many("log", []) == []


async def test_plain_values_and_entries_share_a_batch_and_keep_their_kinds(slow: SlowLog) -> None:
    slow.let(3)
    writer = writer_to(slow)

    first, second, third = await asyncio.gather(
        writer.append_values("log", [b"1", b"2"], kind=Kind.JSON),
        writer.append("log", Entry(b"three", Kind.TEXT)),
        writer.append_values("log", [b"4"]),
    )

    assert (first, second, third) == ([1, 2], 3, [4])
    assert slow.batches == [("log", [b"1", b"2", b"three", b"4"])]
    assert slow.kinds == [[Kind.JSON, Kind.JSON, Kind.TEXT, Kind.BYTES]]


async def test_plain_values_over_the_limit_are_refused(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_message_bytes=10))

    with pytest.raises(PayloadTooLarge):
        await writer.append_values("log", [b"fine", bytes(11)])

    assert slow.batches == []


async def test_a_message_over_the_limit_is_refused_and_nothing_of_its_call_is_stored(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_message_bytes=10))

    for large in (Entry(bytes(11)), Entry(b"", key=bytes(11)), Entry(b"", headers={"name": "0123456"})):
        with pytest.raises(PayloadTooLarge, match="max_message_bytes"):
            await writer.append_many("log", [Entry(b"fine"), large])

    assert slow.batches == []


async def test_closing_waits_for_what_was_accepted_and_refuses_more(slow: SlowLog) -> None:
    writer = writer_to(slow)
    tasks = start(writer, b"a", log="one") + start(writer, b"b", log="two")
    await turn()
    closing = asyncio.create_task(writer.close())
    await turn()
    assert not closing.done()

    slow.let(2)
    await closing

    assert all(task.done() for task in tasks)
    assert await asyncio.gather(*tasks) == [1, 1]
    with pytest.raises(StoreClosed):
        await writer.append("one", Entry(b"late"))


async def test_an_idle_writer_holds_nothing(slow: SlowLog) -> None:
    slow.let(100)
    writer = writer_to(slow)
    for number in range(100):
        await writer.append(f"log-{number}", Entry(b"x"))
    await turn()

    assert not writer._lanes


# Without waiting


class Unheard:
    """Writes down which failures nobody asked for."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []

    def __call__(self, log: str, error: Exception) -> None:
        self.errors.append((log, str(error)))


def posting_to(slow: SlowLog, unheard: Unheard | None = None, limits: WriterLimits | None = None) -> LogWriter:
    return LogWriter(slow.append, clock=lambda: 1, limits=limits, unheard=unheard)


async def test_posted_messages_are_stored_in_order_even_if_nobody_awaits_them(slow: SlowLog) -> None:
    slow.let(1)
    writer = writer_to(slow)

    writer.post_value("log", b"1", Kind.TEXT)
    writer.post("log", Entry(b"2", Kind.JSON, b"key"))
    writer.post_value("log", b"3", Kind.BYTES)
    writer.post_value("log", b"4", Kind.TEXT)
    await writer.flush()

    assert slow.batches == [("log", [b"1", b"2", b"3", b"4"])]
    assert slow.kinds == [[Kind.TEXT, Kind.JSON, Kind.BYTES, Kind.TEXT]]


async def test_a_receipt_gives_the_id_before_and_after_its_message_is_stored_and_again(slow: SlowLog) -> None:
    writer = writer_to(slow)
    first, second = (writer.post_value("log", text, Kind.TEXT) for text in (b"a", b"b"))
    waiting = asyncio.ensure_future(second)
    await turn()
    slow.let(1)

    assert await waiting == 2
    assert await first == 1
    assert await second == 2
    assert list(second.ids()) == [2]


async def test_a_receipt_that_is_given_up_before_its_batch_leaves_takes_the_message_back(slow: SlowLog) -> None:
    writer = writer_to(slow)
    writer.post_value("log", b"on its way", Kind.TEXT)
    await turn()
    gone = asyncio.ensure_future(writer.post_value("log", b"gone", Kind.TEXT))
    kept = writer.post_value("log", b"kept", Kind.TEXT)
    await turn()

    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    slow.let(2)

    assert await kept == 2
    assert [payloads for _, payloads in slow.batches] == [[b"on its way"], [b"kept"]]


async def test_one_of_several_who_await_a_batch_may_leave(slow: SlowLog) -> None:
    writer = writer_to(slow)
    receipt = writer.post_value("log", b"a", Kind.TEXT)
    await turn()
    one, two = asyncio.ensure_future(receipt), asyncio.ensure_future(receipt)
    await turn()

    one.cancel()
    slow.let(1)

    assert await two == 1
    assert one.cancelled()


async def test_a_failed_batch_fails_its_receipts_whenever_they_are_awaited(slow: SlowLog) -> None:
    unheard = Unheard()
    writer = posting_to(slow, unheard)
    slow.failure = StoreUnavailable("gone")
    receipts = [writer.post_value("log", b"x", Kind.TEXT) for _ in range(3)]
    slow.let(1)
    await writer.flush()

    for receipt in receipts:
        with pytest.raises(StoreUnavailable, match="gone"):
            await receipt
    del receipt, receipts
    assert unheard.errors == []


async def test_a_failure_that_nobody_can_ask_for_any_more_is_told_once_without_garbage_collection(
    slow: SlowLog,
) -> None:
    unheard = Unheard()
    writer = posting_to(slow, unheard)
    slow.failure = StoreUnavailable("gone")
    gc.collect()
    gc.disable()
    try:
        for number in range(10):
            writer.post_value("log", b"%d" % number, Kind.TEXT)
        writer.post("log", Entry(b"entry", key=b"k"))
        slow.let(1)
        await writer.flush()
        await turn()
    finally:
        gc.enable()

    assert unheard.errors == [("log", "gone")]


async def test_a_failure_that_somebody_awaits_is_not_told_to_others(slow: SlowLog) -> None:
    unheard = Unheard()
    writer = posting_to(slow, unheard)
    slow.failure = StoreUnavailable("gone")
    writer.post_value("log", b"nobody", Kind.TEXT)
    waiting = asyncio.ensure_future(writer.post_value("log", b"somebody", Kind.TEXT))
    await turn()
    slow.let(1)

    with pytest.raises(StoreUnavailable):
        await waiting
    await turn()
    assert unheard.errors == []


async def test_posting_more_than_may_wait_is_refused_and_appending_waits(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_waiting_bytes=100, max_batch_bytes=60))
    for _ in range(3):
        writer.post_value("log", bytes(50), Kind.BYTES)

    with pytest.raises(Overloaded, match="150 bytes wait"):
        writer.post_value("log", b"x", Kind.BYTES)
    with pytest.raises(Overloaded):
        writer.post("log", Entry(b"x"))
    waiting = [
        asyncio.create_task(writer.append_value("log", b"4", Kind.BYTES)),
        *start(writer, b"5"),
        asyncio.create_task(writer.append_value("other", b"6", Kind.BYTES)),
    ]
    await turn()
    assert not any(task.done() for task in waiting)

    slow.let(10)

    assert await asyncio.gather(*waiting) == [4, 5, 1]
    assert [payloads[-1] for log, payloads in slow.batches if log == "log"][-1] == b"5"
    writer.post_value("log", b"x", Kind.BYTES)
    await writer.flush()


async def test_a_post_never_overtakes_those_who_wait_for_room(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_waiting_bytes=10))

    async def post_twice() -> None:
        await writer.post_value("log", bytes(20), Kind.BYTES)
        with suppress(Overloaded):
            await writer.post_value("log", b"late", Kind.BYTES)

    posting = asyncio.create_task(post_twice())
    await turn()
    (waiting,) = start(writer, b"first")
    await turn()

    slow.let(10)

    assert await waiting == 2
    await posting


async def test_who_waits_for_room_may_leave(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_waiting_bytes=10))
    writer.post_value("log", bytes(20), Kind.BYTES)
    first, second = start(writer, b"first", b"second")
    await turn()

    first.cancel()
    await turn()
    slow.let(2)

    assert await second == 2
    assert [payloads[-1] for _, payloads in slow.batches] == [bytes(20), b"second"]


async def test_posted_messages_over_the_limit_are_refused_at_once(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_message_bytes=10))

    with pytest.raises(PayloadTooLarge):
        writer.post_value("log", bytes(11), Kind.BYTES)
    with pytest.raises(PayloadTooLarge):
        writer.post("log", Entry(bytes(5), key=bytes(6)))
    with pytest.raises(PayloadTooLarge):
        writer.check(Entry(bytes(11)))

    writer.check(Entry(bytes(10)))
    assert not writer._lanes


async def test_a_flush_waits_for_what_was_accepted_and_not_for_what_comes_later(slow: SlowLog) -> None:
    writer = writer_to(slow, WriterLimits(max_batch_messages=2))
    for number in range(3):
        writer.post_value("log", b"%d" % number, Kind.BYTES)
    writer.post_value("other", b"x", Kind.BYTES)
    flushing = asyncio.create_task(writer.flush())
    await turn()
    writer.post_value("log", b"3", Kind.BYTES)
    writer.post_value("log", b"4", Kind.BYTES)
    slow.let(2)
    await turn()
    assert not flushing.done()

    slow.let(1)
    await turn()

    assert flushing.done()
    assert sum(len(payloads) for _, payloads in slow.batches) < 6
    slow.let(5)
    await writer.flush()
    await writer.flush()
    assert sum(len(payloads) for _, payloads in slow.batches) == 6


async def test_a_closed_writer_accepts_no_posts(slow: SlowLog) -> None:
    writer = writer_to(slow)
    await writer.close()

    with pytest.raises(StoreClosed):
        writer.post_value("log", b"x", Kind.BYTES)
    with pytest.raises(StoreClosed):
        writer.post("log", Entry(b"x"))


async def test_of_a_batch_for_which_there_is_little_room_the_first_messages_are_stored(slow: SlowLog) -> None:
    unheard = Unheard()
    writer = posting_to(slow, unheard)
    slow.failure = LogFull("log", 2)
    receipts = [writer.post_value("log", b"%d" % number, Kind.BYTES) for number in range(4)]
    slow.let(2)

    results = await asyncio.gather(*receipts, return_exceptions=True)

    assert results[:2] == [1, 2]
    assert [type(result) for result in results[2:]] == [LogFull, LogFull]
    assert slow.batches == [("log", [b"0", b"1"])]
    assert unheard.errors == []
