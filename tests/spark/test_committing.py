"""Committing with a crash at every point at which there can be one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.errors import Overloaded, StagingLost
from onebus.log.batch import Entry, Kind, decode, encode, encode_values
from onebus.log.retention import Retention
from onebus.spark.sink import appending, targets
from onebus.spark.sink.committing import Committing
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.staging import STAGED_SECONDS, Attempt, Cargo
from onebus.spark.sink.targets import Target
from onebus.stores.base import Store, StoreOptions
from tests.backings import Backing
from tests.clock import FakeClock
from tests.messages import stat_of
from tests.spark.conftest import STORES

T = TypeVar("T")

PARTITIONS = 3
OPTIONS = WriteOptions(("",), topic="out", partitions=PARTITIONS)

Rows = Mapping[Target, Sequence[Sequence[str]]]
"""The batches of texts that a task stages for each target."""


@pytest.fixture(params=STORES)
async def backing(request: pytest.FixtureRequest) -> AsyncIterator[Backing]:
    backing = Backing(request.param, request.getfixturevalue)
    yield backing
    await backing.close()


@pytest.fixture
async def store(backing: Backing) -> Store:
    return await backing.open()


@pytest.fixture
def sink_id() -> str:
    return uuid4().hex


class Crash(Exception):
    """The process ends here."""


class Crashing:
    """Lets a store do some calls; the next one crashes, before or after it has taken effect."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls_left: int | None = None
        self.has_effect = False
        self._call = store._call
        monkeypatch.setattr(store, "_call", self._perhaps)

    async def _perhaps(self, operation: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        if self.calls_left is None or self.calls_left > 0:
            if self.calls_left is not None:
                self.calls_left -= 1
            return await self._call(operation, repeatable=repeatable)
        if self.has_effect:
            # Only the first of several at once.
            self.has_effect = False
            await self._call(operation, repeatable=repeatable)
        raise Crash


async def staged(store: Store, rows: Rows) -> Attempt:
    cargos: dict[str, tuple[str, list[Target], list[tuple[int, int]]]] = {}
    for target, lists in rows.items():
        place = f"topic:{target.name}"
        if place not in cargos:
            cargos[place] = await store.stage(place, ttl_seconds=STAGED_SECONDS), [], []
        log, targets, batches = cargos[place]
        targets.append(target)
        for texts in lists:
            blob = encode_values([text.encode() for text in texts], kind=Kind.TEXT, now_ms=1)
            batches.append((len(targets) - 1, await store.append(log, blob, durable=False) + len(texts) - 1))
    return Attempt([Cargo(*cargo) for cargo in cargos.values()])


def routed(texts: Sequence[str], topic: str, shift: int) -> Rows:
    """Give texts to the partitions of a topic, in another way for each shift, in batches of two."""
    rows: dict[Target, list[list[str]]] = {}
    for position, text in enumerate(texts):
        batches = rows.setdefault(Target(topic, (position + shift) % PARTITIONS), [[]])
        if len(batches[-1]) == 2:
            batches.append([])
        batches[-1].append(text)
    return rows


async def texts_in(store: Store, topic: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        read = await store.read(f"topic:{topic}|{partition}", after=0)
        found.update(text.decode() for batch in read.batches for text in decode(batch.blob).payloads())
    return found


async def staging_logs(store: Store, sink_id: str) -> list[str]:
    return await store.list_staging(f"topic:{sink_id}")


TEXTS = [str(number) for number in range(14)]


@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("aborts", [False, True], ids=["killed", "aborted"])
async def test_a_crash_at_any_call_leaves_each_message_once(
    store: Store, sink_id: str, has_effect: bool, aborts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "TRANSFER_BATCHES", 1)
    crashing = Crashing(store, monkeypatch)
    crashes = 0
    has_crashed = True
    while has_crashed:
        topic, sink = f"{sink_id}-{crashes}", f"{sink_id}-{crashes}"
        committing = Committing(store, OPTIONS, sink)
        has_crashed = False
        for batch_id, texts in enumerate((TEXTS[:4], TEXTS[4:])):
            first = [await staged(store, routed(texts, topic, 0))]
            crashing.calls_left, crashing.has_effect = crashes if batch_id else None, has_effect
            try:
                await committing.commit(batch_id, first)
            except Crash:
                has_crashed = True
            crashing.calls_left = None
            if has_crashed and aborts:
                await committing.abort(first)

        # Spark runs the batch again, with other tasks, and goes on.
        again = [await staged(store, routed(part, topic, 1)) for part in (TEXTS[4:9], TEXTS[9:])]
        await Committing(store, OPTIONS, sink).commit(1, again)
        await Committing(store, OPTIONS, sink).commit(2, [await staged(store, routed(["last"], topic, 2))])

        assert await texts_in(store, topic) == dict.fromkeys([*TEXTS, "last"], 1), f"after {crashes} calls"
        for log in await staging_logs(store, sink):
            assert (await stat_of(store, log)).ttl_seconds > 0, f"{log} stays for ever after {crashes} calls"
        crashes += 1
    assert crashes > 15


async def test_a_batch_that_crashes_again_and_again_comes_once(
    store: Store, sink_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = Crashing(store, monkeypatch)
    is_done = False
    attempt = 0
    while not is_done:
        attempts = [await staged(store, routed(TEXTS, sink_id, attempt))]
        crashing.calls_left, crashing.has_effect = attempt, bool(attempt % 2)
        try:
            await Committing(store, OPTIONS, sink_id).commit(0, attempts)
            is_done = True
        except Crash:
            attempt += 1
        crashing.calls_left = None

    assert await texts_in(store, sink_id) == dict.fromkeys(TEXTS, 1)
    assert attempt > 3


async def test_two_drivers_that_commit_the_same_batch_write_it_once(
    backing: Backing, store: Store, sink_id: str
) -> None:
    other = await backing.open()
    for batch_id in range(5):
        texts = [f"{batch_id}:{text}" for text in TEXTS]
        drivers = [
            Committing(one, OPTIONS, sink_id).commit(batch_id, [await staged(one, routed(texts, sink_id, shift))])
            for shift, one in enumerate((store, other))
        ]
        await asyncio.gather(*drivers)

    found = await texts_in(store, sink_id)
    assert found == {f"{batch_id}:{text}": 1 for batch_id in range(5) for text in TEXTS}
    assert await staging_logs(store, sink_id) == []


async def test_what_is_older_than_the_newest_batch_is_not_written(store: Store, sink_id: str) -> None:
    committing = Committing(store, OPTIONS, sink_id)
    await committing.commit(7, [await staged(store, routed(["new"], sink_id, 0))])

    await committing.commit(3, [await staged(store, routed(["old"], sink_id, 0))])
    await committing.commit(7, [await staged(store, routed(["again"], sink_id, 0))])

    assert await texts_in(store, sink_id) == {"new": 1}
    assert await staging_logs(store, sink_id) == []


async def test_a_batch_without_rows_is_nothing(store: Store, sink_id: str) -> None:
    await Committing(store, OPTIONS, sink_id).commit(0, [Attempt([])])
    await Committing(store, OPTIONS, sink_id).commit(1, [])

    assert await store.get(f"spark:{sink_id}") is None


async def test_what_waited_for_too_long_is_an_error_and_may_be_written_again(backing: Backing, sink_id: str) -> None:
    clock = FakeClock()
    store = await backing.open(StoreOptions(clock=clock))
    attempt = await staged(store, routed(TEXTS, sink_id, 0))
    clock.advance(STAGED_SECONDS + 1)

    with pytest.raises(StagingLost, match="run it again"):
        await Committing(store, OPTIONS, sink_id).commit(0, [attempt])
    assert await texts_in(store, sink_id) == {}
    with pytest.raises(StagingLost, match="batch 0"):
        await Committing(store, OPTIONS, sink_id).commit(1, [attempt])

    await Committing(store, OPTIONS, sink_id).commit(0, [await staged(store, routed(TEXTS, sink_id, 1))])

    assert await texts_in(store, sink_id) == dict.fromkeys(TEXTS, 1)


async def test_what_was_decided_waits_as_long_as_it_takes(
    backing: Backing, sink_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    store = await backing.open(StoreOptions(clock=clock))
    attempt = await staged(store, routed(TEXTS, sink_id, 0))
    with monkeypatch.context() as patch:
        crashing = Crashing(store, patch)
        # A look at the record, the decision, keeping what was staged, and a first look at the targets.
        crashing.calls_left = 4
        with pytest.raises(Crash):
            await Committing(store, OPTIONS, sink_id).commit(0, [attempt])
    clock.advance(100 * STAGED_SECONDS)

    await Committing(store, OPTIONS, sink_id).commit(0, [])

    assert await texts_in(store, sink_id) == dict.fromkeys(TEXTS, 1)


async def test_a_write_that_is_never_repeated_leaves_nothing_but_its_messages(store: Store, sink_id: str) -> None:
    attempt = await staged(store, routed(TEXTS, sink_id, 0))

    await Committing(store, OPTIONS, sink_id).commit_once([attempt])

    assert await texts_in(store, sink_id) == dict.fromkeys(TEXTS, 1)
    assert await staging_logs(store, sink_id) == []
    assert await store.get(f"spark:{sink_id}") is None


async def test_a_topic_is_what_it_was_whoever_writes_to_it(backing: Backing, store: Store, sink_id: str) -> None:
    async with Bus(backing.url) as bus:
        topic = bus.topic(sink_id, partitions=2, retention=Retention(max_count=3))
        await topic.create()

        await Committing(store, OPTIONS, sink_id).commit(
            0, [await staged(store, {Target(sink_id, 1): [["1", "2", "3"], ["4", "5"]]})]
        )

        assert (await topic.describe()).partitions == 2
        assert [message.data for message in await topic.read(1)] == ["3", "4", "5"]


async def test_a_compacted_topic_forgets_what_spark_has_replaced(
    backing: Backing, store: Store, sink_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "COMPACT_AFTER", 4)
    async with Bus(backing.url) as bus:
        topic = bus.topic(sink_id, partitions=1, compact=True)
        await topic.create()
        log = await store.stage(f"topic:{sink_id}|0", ttl_seconds=STAGED_SECONDS)
        batches = [encode([Entry(str(number).encode(), key=b"k")], now_ms=1) for number in range(5)]
        last_ids = [await store.append(log, batch) for batch in batches]

        cargo = Cargo(log, [Target(sink_id)], [(0, last_id) for last_id in last_ids])
        await Committing(store, OPTIONS, sink_id).commit(0, [Attempt([cargo])])

        assert [message.data for message in await topic.read(0)] == [b"4"]


async def test_a_batch_never_takes_the_numbers_of_the_next_one(
    store: Store, sink_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "APPENDS_PER_BATCH", 2)
    monkeypatch.setattr(appending, "TRANSFER_BATCHES", 1)
    committing = Committing(store, OPTIONS, sink_id)
    fitting = {Target(sink_id): [["1"], ["2"]], Target(sink_id, 1): [["3"], ["4"]]}

    await committing.commit(0, [await staged(store, fitting)])
    with pytest.raises(Overloaded, match="Write less"):
        await committing.commit(1, [await staged(store, {Target(sink_id): [["5"], ["6"], ["7"]]})])

    assert await texts_in(store, sink_id) == dict.fromkeys("1234", 1)


async def test_what_was_aborted_is_gone(store: Store, sink_id: str) -> None:
    attempt = await staged(store, routed(TEXTS, sink_id, 0))

    await Committing(store, OPTIONS, sink_id).abort([attempt])

    assert await staging_logs(store, sink_id) == []


async def test_what_a_crash_of_the_machine_has_swallowed_is_not_decided_on(store: Store, sink_id: str) -> None:
    whole = await staged(store, routed(TEXTS, sink_id, 0))
    (cargo,) = whole.cargos
    # What was staged last had not reached the disk.
    cut = Attempt([Cargo(cargo.log, cargo.targets, [*cargo.batches, (0, cargo.batches[-1][1] + 2)])])

    with pytest.raises(StagingLost, match="run it again"):
        await Committing(store, OPTIONS, sink_id).commit(0, [cut])

    assert await texts_in(store, sink_id) == {}
    await Committing(store, OPTIONS, sink_id).commit(0, [await staged(store, routed(TEXTS, sink_id, 1))])
    assert await texts_in(store, sink_id) == dict.fromkeys(TEXTS, 1)
