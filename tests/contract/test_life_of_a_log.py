import asyncio

import pytest

from onebus.errors import LeaseLost
from onebus.log.retention import Retention
from onebus.stores.base import FOREVER, Store
from tests.clock import FakeClock
from tests.messages import batch_of, claimed_ids, numbered, stat_of, texts_of


async def test_a_touched_log_exists_empty(store: Store, log: str) -> None:
    assert await store.touch(log) is False
    assert await store.stat(log) is None

    assert await store.touch(log, create=True) is False
    assert await store.touch(log, create=True) is True

    stat = await store.stat(log)
    assert stat is not None
    assert (stat.first_id, stat.last_id, stat.head, stat.ttl_seconds) == (1, 0, 1, FOREVER)


async def test_a_log_expires_after_its_time_to_live_and_not_before(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    clock.advance(9.999)
    assert await timed_store.stat(log) is not None

    clock.advance(0.001)

    assert await timed_store.stat(log) is None
    assert await timed_store.list_logs(log) == []
    assert not (await timed_store.read(log, after=0)).batches


async def test_touching_and_appending_start_the_time_to_live_anew(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    clock.advance(9)
    await timed_store.append(log, numbered(1))
    clock.advance(9)
    assert await timed_store.touch(log) is True
    clock.advance(9)

    stat = await timed_store.stat(log)
    assert stat is not None
    assert stat.ttl_seconds == 10
    clock.advance(1)
    assert await timed_store.stat(log) is None


async def test_a_time_to_live_can_be_removed(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    await timed_store.touch(log, ttl_seconds=FOREVER)
    clock.advance(3600)

    assert await timed_store.stat(log) is not None


async def test_a_time_to_live_can_be_changed(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    await timed_store.touch(log, ttl_seconds=20)
    clock.advance(19)

    assert (await stat_of(timed_store, log)).ttl_seconds == 20
    clock.advance(1)
    assert await timed_store.stat(log) is None


@pytest.mark.parametrize("ttl_seconds", [1, 100, FOREVER, None])
async def test_creating_a_log_that_exists_keeps_its_time_to_live_and_starts_it_anew(
    timed_store: Store, clock: FakeClock, log: str, ttl_seconds: float | None
) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    clock.advance(9)

    assert await timed_store.touch(log, ttl_seconds=ttl_seconds, create=True) is True

    clock.advance(9)
    assert (await stat_of(timed_store, log)).ttl_seconds == 10
    clock.advance(1)
    assert await timed_store.stat(log) is None


async def test_creating_a_log_that_lives_for_ever_gives_it_no_time_to_live(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.append(log, numbered(1))

    await timed_store.touch(log, ttl_seconds=10, create=True)

    clock.advance(11)
    assert (await stat_of(timed_store, log)).ttl_seconds == FOREVER


async def test_an_expired_log_is_created_with_the_time_to_live_of_its_creator(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    clock.advance(10)

    assert await timed_store.touch(log, ttl_seconds=20, create=True) is False

    assert (await stat_of(timed_store, log)).ttl_seconds == 20


async def test_of_several_creators_of_a_log_exactly_one_decides_how_long_it_lives(
    store: Store, other_store: Store, log: str
) -> None:
    for attempt in range(5):
        name = f"{log}:{attempt}"
        times = [100.0, 200.0, 300.0, 400.0]

        existed = await asyncio.gather(
            *(
                one.touch(name, ttl_seconds=seconds, create=True)
                for one, seconds in zip((store, other_store) * 2, times, strict=True)
            )
        )

        assert sorted(existed) == [False, True, True, True]
        assert (await stat_of(store, name)).ttl_seconds == times[existed.index(False)]


async def test_an_expired_log_begins_again_with_another_epoch(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    await timed_store.append(log, numbered(3))
    await timed_store.claim(log, limit=1, lease_seconds=5)
    before = await timed_store.read(log, after=0)
    clock.advance(11)

    first = await timed_store.append(log, batch_of("new"))

    after = await timed_store.read(log, after=0)
    assert first == 1
    assert texts_of(after) == ["new"]
    assert after.epoch not in ("", before.epoch)
    assert claimed_ids(await timed_store.claim(log, limit=9)) == [1]


async def test_ids_go_on_after_a_clear(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    lease = (await store.claim(log, limit=1, lease_seconds=30)).leases

    await store.clear(log)

    stat = await store.stat(log)
    assert stat is not None
    assert (stat.first_id, stat.claimable, stat.held, stat.bytes) == (4, 0, 0, 0)
    assert await store.append(log, numbered(1)) == 4
    with pytest.raises(LeaseLost):
        await store.settle(log, lease)
    assert claimed_ids(await store.claim(log, limit=9)) == [4]


async def test_a_dropped_log_is_gone(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    before = await store.read(log, after=0)

    assert await store.drop(log) is True

    assert await store.drop(log) is False
    assert await store.stat(log) is None
    assert await store.append(log, numbered(1)) == 1
    assert (await store.read(log, after=0)).epoch != before.epoch


async def test_logs_are_listed_by_prefix(store: Store, log: str) -> None:
    for name in (f"{log}:b", f"{log}:a", f"{log}%c", f"{log}|d"):
        await store.append(name, numbered(1))

    assert await store.list_logs(f"{log}:") == [f"{log}:a", f"{log}:b"]
    assert await store.list_logs(f"{log}%") == [f"{log}%c"]
    assert set(await store.list_logs()) >= {f"{log}:a", f"{log}|d"}


async def test_a_store_knows_which_places_live_in_it(store: Store, log: str) -> None:
    assert not await store.holds(log)
    await store.append(f"{log}|", numbered(1))
    assert await store.holds(log)

    await store.append(f"{log}:plain", numbered(1))
    await store.put(f"{log}:record", {"a": b"1"})
    assert await store.holds(f"{log}:plain")
    assert await store.holds(f"{log}:record")


async def test_trimming_by_count_is_exact(store: Store, log: str) -> None:
    await store.append(log, numbered(4))
    await store.append(log, numbered(4, start=5))

    assert await store.trim(log, Retention(max_count=3)) == 6

    found = await store.read(log, after=0)
    assert found.first_id == 6
    assert texts_of(found) == ["6", "7", "8"]
    assert claimed_ids(await store.claim(log, limit=9)) == [6, 7, 8]


async def test_what_is_before_an_id_is_forgotten_whatever_is_appended_meanwhile(store: Store, log: str) -> None:
    await store.append(log, numbered(4))
    epoch = (await store.read(log, after=0)).epoch
    await store.append(log, numbered(4, start=5))

    assert await store.forget(log, before=3, epoch=epoch) == 3

    assert texts_of(await store.read(log, after=0), after=2) == ["3", "4", "5", "6", "7", "8"]
    assert await store.forget(log, before=2, epoch=epoch) == 3
    assert await store.forget(log, before=100, epoch=epoch) == 9
    assert await store.append(log, numbered(1, start=9)) == 9


async def test_another_life_of_a_log_forgets_nothing(store: Store, log: str) -> None:
    await store.append(log, numbered(4))
    epoch = (await store.read(log, after=0)).epoch
    await store.drop(log)
    await store.append(log, numbered(4))

    assert await store.forget(log, before=3, epoch=epoch) == 1
    assert await store.forget(f"{log}:nothing", before=3, epoch=epoch) == 1


async def test_trimming_by_bytes_removes_whole_old_batches_and_keeps_the_newest(store: Store, log: str) -> None:
    blob = batch_of("x" * 500)
    for _ in range(4):
        await store.append(log, blob)

    assert await store.trim(log, Retention(max_bytes=2 * len(blob))) == 3
    assert await store.trim(log, Retention(max_bytes=1)) == 4


async def test_trimming_by_age_removes_old_batches(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(2))
    clock.advance(10)
    await timed_store.append(log, numbered(2))

    assert await timed_store.trim(log, Retention(max_age_seconds=10)) == 1
    clock.advance(0.001)
    assert await timed_store.trim(log, Retention(max_age_seconds=10)) == 3
    clock.advance(11)
    assert await timed_store.trim(log, Retention(max_age_seconds=10)) == 5
    assert (await timed_store.stat(log)).bytes == 0  # type: ignore[union-attr]


async def test_trimming_never_goes_back(store: Store, log: str) -> None:
    await store.append(log, numbered(5))
    await store.trim(log, Retention(max_count=2))

    assert await store.trim(log, Retention(max_count=100)) == 4


async def test_trimmed_messages_are_gone_for_claims_whoever_holds_them(store: Store, log: str) -> None:
    await store.append(log, numbered(6))
    (lease,) = (await store.claim(log, limit=4, lease_seconds=30)).leases

    await store.trim(log, Retention(max_count=3))

    with pytest.raises(LeaseLost) as caught:
        await store.settle(log, [lease])
    assert caught.value.lost == ((1, 3),)
    assert claimed_ids(await store.claim(log, limit=9)) == [5, 6]


async def test_a_cut_batch_whose_visible_messages_are_done_is_deleted(store: Store, log: str) -> None:
    await store.append(log, numbered(4))
    await store.append(log, numbered(1, start=5))
    (lease,) = (await store.claim(log, limit=4, lease_seconds=30)).leases
    await store.settle(log, [lease.part(3, 4)])

    await store.trim(log, Retention(max_count=3))

    assert [batch.first_id for batch in (await store.read(log, after=0)).batches] == [5]


async def test_an_append_trims_in_the_same_step(store: Store, log: str) -> None:
    site = f"{log}|"
    for number in range(5):
        await store.append(
            f"{log}|/chat",
            batch_of(str(number)),
            retain=Retention(max_count=2),
            mirror=site,
            mirror_retain=Retention(max_count=3),
        )

    assert texts_of(await store.read(f"{log}|/chat", after=0)) == ["3", "4"]
    assert texts_of(await store.read(site, after=0)) == ["2", "3", "4"]


async def test_trimming_an_absent_log_creates_nothing(store: Store, log: str) -> None:
    assert await store.trim(log, Retention(max_count=1)) == 1
    await store.clear(log)

    assert await store.stat(log) is None
