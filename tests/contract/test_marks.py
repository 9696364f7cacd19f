import asyncio
from collections import Counter

import pytest

from onebus.errors import AlreadyAppended, InvalidArgument, InvalidName, LogFull, StoreUnavailable
from onebus.log.mark import MAX_NUMBER, Mark
from onebus.log.retention import Retention
from onebus.stores.base import AppendRequest, Store
from tests.clock import FakeClock
from tests.messages import batch_of, claimed_texts, numbered, stat_of, texts_of


async def refused(store: Store, log: str, mark: Mark) -> tuple[int, int]:
    """Return the newest number of the mark's source, and its first id, when an append comes too late."""
    with pytest.raises(AlreadyAppended) as caught:
        await store.append(log, batch_of("again"), mark=mark)
    assert (caught.value.log, caught.value.source) == (log, mark.source)
    return caught.value.number, caught.value.first_id


async def test_numbered_appends_follow_each_other(store: Store, log: str) -> None:
    assert await store.append(log, numbered(2), mark=Mark("a", 0)) == 1
    assert await store.append(log, numbered(2, start=3), mark=Mark("a", 1)) == 3
    assert await store.append(log, numbered(1, start=5), mark=Mark("a", 1_000_000)) == 5
    assert await store.append(log, numbered(1, start=6)) == 6

    assert texts_of(await store.read(log, after=0)) == ["1", "2", "3", "4", "5", "6"]


async def test_an_append_that_is_repeated_changes_nothing(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    await store.append(log, numbered(2, start=4), mark=Mark("a", 7))
    before = await store.stat(log), await store.read(log, after=0)

    assert await refused(store, log, Mark("a", 7)) == (7, 4)

    assert (await store.stat(log), await store.read(log, after=0)) == before


async def test_a_lower_number_comes_too_late(store: Store, log: str) -> None:
    await store.append(log, numbered(1), mark=Mark("a", 5))
    await store.append(log, numbered(1, start=2), mark=Mark("a", 9))

    assert await refused(store, log, Mark("a", 0)) == (9, 2)
    assert await refused(store, log, Mark("a", 8)) == (9, 2)
    assert await store.append(log, numbered(1, start=3), mark=Mark("a", 10)) == 3


async def test_sources_and_logs_do_not_know_of_each_other(store: Store, log: str) -> None:
    other_log = f"{log}|other"
    await store.append(log, batch_of("a"), mark=Mark("a", 9))

    await store.append(log, batch_of("b"), mark=Mark("b", 3))
    await store.append(log, batch_of("A"), mark=Mark("A", 1))
    await store.append(other_log, batch_of("a"), mark=Mark("a", 4))

    assert texts_of(await store.read(log, after=0)) == ["a", "b", "A"]
    assert await refused(store, log, Mark("a", 9)) == (9, 1)
    assert await refused(store, log, Mark("b", 3)) == (3, 2)
    assert await refused(store, other_log, Mark("a", 4)) == (4, 1)


async def test_the_largest_number_is_kept_exactly(store: Store, log: str) -> None:
    await store.append(log, batch_of("x"), mark=Mark("a", MAX_NUMBER - 1))

    assert await refused(store, log, Mark("a", MAX_NUMBER - 1)) == (MAX_NUMBER - 1, 1)
    assert await store.append(log, batch_of("y"), mark=Mark("a", MAX_NUMBER)) == 2
    assert await refused(store, log, Mark("a", MAX_NUMBER)) == (MAX_NUMBER, 2)


async def test_an_append_that_does_not_fit_leaves_no_mark(store: Store, log: str) -> None:
    with pytest.raises(LogFull):
        await store.append(log, numbered(6), capacity=5, mark=Mark("a", 1))
    assert await store.stat(log) is None

    assert await store.append(log, numbered(5), capacity=5, mark=Mark("a", 1)) == 1
    with pytest.raises(LogFull):
        await store.append(log, numbered(1), capacity=5, mark=Mark("a", 2))
    await store.claim(log, limit=1)

    assert await store.append(log, numbered(1), capacity=5, mark=Mark("a", 2)) == 6


async def test_a_full_log_still_knows_what_it_has_had(store: Store, log: str) -> None:
    await store.append(log, numbered(5), capacity=5, mark=Mark("a", 1))

    with pytest.raises(AlreadyAppended):
        await store.append(log, numbered(5), capacity=5, mark=Mark("a", 1))


async def test_a_repeated_append_reaches_neither_the_log_nor_its_mirror(store: Store, log: str) -> None:
    channel, site = f"{log}|/chat", f"{log}|"
    await store.append(f"{log}|/other", numbered(4), mirror=site)
    assert await store.append(channel, numbered(3), mirror=site, mark=Mark("a", 1)) == 1

    with pytest.raises(AlreadyAppended):
        await store.append(channel, numbered(3), mirror=site, mark=Mark("a", 1))

    assert ((await stat_of(store, channel)).last_id, (await stat_of(store, site)).last_id) == (3, 7)
    assert await store.append(site, numbered(1), mark=Mark("a", 1)) == 8


async def test_marks_outlive_the_messages(store: Store, log: str) -> None:
    await store.append(log, numbered(5), mark=Mark("a", 1), retain=Retention(max_count=2))
    assert await refused(store, log, Mark("a", 1)) == (1, 1)

    await store.clear(log)

    assert await refused(store, log, Mark("a", 1)) == (1, 1)
    await store.append(log, numbered(5), mark=Mark("a", 2))
    assert claimed_texts(await store.claim(log, limit=9)) == ["1", "2", "3", "4", "5"]
    assert await refused(store, log, Mark("a", 2)) == (2, 6)


async def test_marks_end_with_the_log(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(1), mark=Mark("a", 5))
    await timed_store.drop(log)
    assert await timed_store.append(log, numbered(1), mark=Mark("a", 5)) == 1

    await timed_store.touch(log, ttl_seconds=10)
    clock.advance(11)

    assert await timed_store.append(log, numbered(1), mark=Mark("a", 5)) == 1


async def test_a_mark_that_is_taken_away_is_forgotten(store: Store, log: str) -> None:
    await store.unmark(log, "a")
    await store.append(log, numbered(1), mark=Mark("a", 5))
    await store.append(log, numbered(1), mark=Mark("b", 5))

    await store.unmark(log, "a")

    assert await store.append(log, numbered(1), mark=Mark("a", 1)) == 3
    assert await refused(store, log, Mark("b", 5)) == (5, 2)


async def test_of_those_who_append_the_same_at_once_one_does(store: Store, other_store: Store, log: str) -> None:
    async def append(one: Store, number: int) -> int | None:
        try:
            return await one.append(log, numbered(2), mark=Mark("a", number))
        except AlreadyAppended:
            return None

    for number in range(5):
        results = await asyncio.gather(*(append(one, number) for one in (store, other_store) * 5))

        assert Counter(results) == {None: 9, 2 * number + 1: 1}
    assert (await stat_of(store, log)).last_id == 10


async def test_a_marked_append_is_sent_again_when_the_connection_breaks(
    store: Store, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for one in getattr(store, "_shards", [store]):
        append = one._append

        async def break_off(name: str, request: AppendRequest, append=append) -> int:  # type: ignore[no-untyped-def]
            first_id: int = await append(name, request)
            calls.append(name)
            if len(calls) == 1:
                raise StoreUnavailable("the answer got lost")
            return first_id

        monkeypatch.setattr(one, "_append", break_off)

    assert await store.append(log, numbered(3), mark=Mark("a", 1)) == 1
    assert await store.append(log, numbered(3), mark=Mark("a", 2)) == 4
    assert calls == [log, log]

    calls.clear()
    with pytest.raises(StoreUnavailable):
        await store.append(log, numbered(3))
    assert (await stat_of(store, log)).last_id == 9


async def test_marks_that_no_store_can_keep_are_refused(store: Store, log: str) -> None:
    for number in (-1, MAX_NUMBER + 1):
        with pytest.raises(InvalidArgument, match="number"):
            Mark("a", number)
    with pytest.raises(InvalidName):
        Mark("", 1)
    with pytest.raises(InvalidName):
        await store.unmark(log, "x" * 300)
