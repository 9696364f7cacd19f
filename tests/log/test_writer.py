import asyncio
from collections.abc import Awaitable, Callable

import pytest

from onebus.errors import PayloadTooLarge, StoreClosed, StoreUnavailable
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
