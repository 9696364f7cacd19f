import asyncio

import pytest

from onebus.errors import LeaseLost
from onebus.log.claims import ANY_FENCE, Lease
from onebus.stores.base import Store
from tests.clock import FakeClock
from tests.messages import batch_of, claimed_ids, claimed_texts, numbered, stat_of


async def test_a_claim_takes_the_oldest_messages_first(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    await store.append(log, numbered(3, start=4))

    claim = await store.claim(log, limit=4, lease_seconds=30)

    assert claimed_texts(claim) == ["1", "2", "3", "4"]
    assert claim.leases[0].attempts == 1


async def test_claims_are_disjoint(store: Store, other_store: Store, log: str) -> None:
    await store.append(log, numbered(100))

    claims = await asyncio.gather(*(one.claim(log, limit=7, lease_seconds=30) for one in (store, other_store) * 10))

    taken = [id_ for claim in claims for id_ in claimed_ids(claim)]
    assert sorted(taken) == list(range(1, 101))


async def test_a_claim_of_an_empty_or_absent_log_takes_nothing(store: Store, log: str) -> None:
    assert (await store.claim(log, limit=5)).leases == ()
    await store.append(log, numbered(1))
    await store.claim(log, limit=5)

    assert list((await store.claim(log, limit=5)).leases) == []


async def test_a_claim_without_a_lease_is_done_at_once(store: Store, log: str) -> None:
    await store.append(log, numbered(3))

    claim = await store.claim(log, limit=3)

    assert claimed_texts(claim) == ["1", "2", "3"]
    stat = await stat_of(store, log)
    assert (stat.claimable, stat.held, stat.bytes) == (0, 0, 0)
    assert not (await store.read(log, after=0)).batches


async def test_a_batch_stays_until_all_its_messages_are_done(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    await store.claim(log, limit=2)

    assert (await stat_of(store, log)).bytes > 0

    await store.claim(log, limit=1)
    assert (await stat_of(store, log)).bytes == 0


async def test_settled_messages_are_never_delivered_again(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(3))
    claim = await timed_store.claim(log, limit=3, lease_seconds=10)

    await timed_store.settle(log, claim.leases)

    clock.advance(3600)
    assert not (await timed_store.claim(log, limit=3)).leases
    assert (await stat_of(timed_store, log)).bytes == 0


async def test_released_messages_come_back_before_newer_ones_in_order(store: Store, log: str) -> None:
    await store.append(log, numbered(10))
    claim = await store.claim(log, limit=6, lease_seconds=30)
    (lease,) = claim.leases

    await store.release(log, [lease.part(4, 5), lease.part(2, 2)])

    again = await store.claim(log, limit=5, lease_seconds=30)
    assert claimed_ids(again) == [2, 4, 5, 7, 8]
    assert [lease.attempts for lease in again.leases] == [2, 2, 1]


async def test_a_claim_splits_a_released_range_that_is_larger_than_its_limit(store: Store, log: str) -> None:
    await store.append(log, numbered(5))
    claim = await store.claim(log, limit=5, lease_seconds=30)
    await store.release(log, claim.leases)

    assert claimed_ids(await store.claim(log, limit=2, lease_seconds=30)) == [1, 2]
    assert claimed_ids(await store.claim(log, limit=9, lease_seconds=30)) == [3, 4, 5]


async def test_a_release_that_was_no_attempt_does_not_count_as_one(store: Store, log: str) -> None:
    await store.append(log, numbered(1))
    claim = await store.claim(log, limit=1, lease_seconds=30)

    await store.release(log, claim.leases, attempted=False)

    assert (await store.claim(log, limit=1, lease_seconds=30)).leases[0].attempts == 1


async def test_a_delayed_release_is_claimable_after_the_delay_and_not_before(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.append(log, numbered(2))
    claim = await timed_store.claim(log, limit=1, lease_seconds=30)
    await timed_store.release(log, claim.leases, delay_seconds=5)

    assert claimed_ids(await timed_store.claim(log, limit=1, lease_seconds=30)) == [2]
    waiting = await timed_store.claim(log, limit=1, lease_seconds=30)
    assert (list(waiting.leases), waiting.retry_after_seconds) == ([], 5.0)

    clock.advance(5)
    assert claimed_ids(await timed_store.claim(log, limit=9, lease_seconds=30)) == [1]


async def test_expired_leases_come_back_before_newer_messages(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(4))
    await timed_store.claim(log, limit=2, lease_seconds=10)

    clock.advance(9.999)
    assert claimed_ids(await timed_store.claim(log, limit=1, lease_seconds=100)) == [3]

    clock.advance(0.001)
    again = await timed_store.claim(log, limit=9, lease_seconds=100)
    assert claimed_ids(again) == [1, 2, 4]
    assert again.leases[0].attempts == 2


async def test_an_expired_lease_may_be_settled_until_somebody_else_takes_it(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.append(log, numbered(2))
    claim = await timed_store.claim(log, limit=2, lease_seconds=10)
    (lease,) = claim.leases
    clock.advance(11)
    assert claimed_ids(await timed_store.claim(log, limit=1, lease_seconds=10)) == [1]

    with pytest.raises(LeaseLost) as caught:
        await timed_store.settle(log, [lease])

    assert caught.value.lost == ((1, 1),)
    assert not (await timed_store.claim(log, limit=2)).leases


async def test_an_old_fence_cannot_settle_release_or_extend(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(3))
    old = (await timed_store.claim(log, limit=3, lease_seconds=1)).leases
    clock.advance(2)
    new = (await timed_store.claim(log, limit=3, lease_seconds=100)).leases

    for attempt in (
        timed_store.settle(log, old),
        timed_store.release(log, old),
        timed_store.extend(log, old, lease_seconds=9),
    ):
        with pytest.raises(LeaseLost):
            await attempt

    await timed_store.settle(log, new)


async def test_settling_what_was_never_leased_is_told(store: Store, log: str) -> None:
    with pytest.raises(LeaseLost):
        await store.settle(log, [Lease(1, 2, fence=1)])
    await store.append(log, numbered(2))
    done_at_once = await store.claim(log, limit=1)

    with pytest.raises(LeaseLost):
        await store.settle(log, done_at_once.leases)


async def test_an_extended_lease_lasts_from_then_on(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(3))
    (lease,) = (await timed_store.claim(log, limit=3, lease_seconds=10)).leases
    clock.advance(8)

    await timed_store.extend(log, [lease.part(2, 3)], lease_seconds=10)

    clock.advance(5)
    assert claimed_ids(await timed_store.claim(log, limit=9, lease_seconds=10)) == [1]
    await timed_store.settle(log, [lease.part(2, 3)])


async def test_a_lease_that_is_not_redelivered_is_done_when_it_ends(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.append(log, numbered(3))
    (lease,) = (await timed_store.claim(log, limit=3, lease_seconds=10, redeliver=False)).leases
    await timed_store.release(log, [lease.part(3, 3)])
    clock.advance(11)

    assert claimed_ids(await timed_store.claim(log, limit=9, lease_seconds=10)) == [3]
    with pytest.raises(LeaseLost):
        await timed_store.settle(log, [lease.part(1, 2)])


async def test_messages_can_be_settled_one_by_one_in_any_order(store: Store, log: str) -> None:
    await store.append(log, numbered(5))
    (lease,) = (await store.claim(log, limit=5, lease_seconds=30)).leases

    for id_ in (3, 1, 5, 2, 4):
        await store.settle(log, [lease.part(id_, id_)])

    stat = await stat_of(store, log)
    assert (stat.held, stat.claimable, stat.bytes) == (0, 0, 0)


async def test_many_single_messages_are_settled_in_one_call(store: Store, log: str) -> None:
    for start in range(1, 101, 10):
        await store.append(log, numbered(10, start))
    (lease,) = (await store.claim(log, limit=100, lease_seconds=30)).leases

    await store.settle(log, [lease.part(id_, id_) for id_ in range(2, 101, 2)])

    stat = await stat_of(store, log)
    assert stat.held == 50
    await store.settle(log, [lease.part(id_, id_) for id_ in range(1, 101, 2)])
    assert (await stat_of(store, log)).bytes == 0


async def test_a_claim_settles_earlier_leases_in_the_same_step(store: Store, log: str) -> None:
    await store.append(log, numbered(4))
    first = await store.claim(log, limit=2, lease_seconds=30)

    second = await store.claim(log, limit=2, lease_seconds=30, settle=first.leases)

    assert claimed_ids(second) == [3, 4]
    assert (await stat_of(store, log)).held == 2
    third = await store.claim(log, limit=2, lease_seconds=30, settle=[*first.leases, *second.leases])
    assert list(third.lost) == [(1, 2)]
    assert (await stat_of(store, log)).held == 0


async def test_who_does_not_know_the_fence_settles_for_whoever_holds_the_messages(
    store: Store, other_store: Store, log: str
) -> None:
    await store.append(log, numbered(4))
    for _ in range(3):
        await store.claim(log, limit=1, lease_seconds=30)

    await other_store.settle(log, [Lease(2, 2, ANY_FENCE)])

    with pytest.raises(LeaseLost) as lost:
        await other_store.settle(log, [Lease(1, 4, ANY_FENCE)])
    assert list(lost.value.lost) == [(2, 2), (4, 4)]
    assert claimed_ids(await store.claim(log, limit=9, lease_seconds=30)) == [4]


async def test_who_does_not_know_the_fence_has_no_power_over_what_nobody_holds(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.append(log, numbered(4))
    (lease,) = (await timed_store.claim(log, limit=3, lease_seconds=10)).leases
    await timed_store.release(log, [lease.part(1, 1)])
    await timed_store.release(log, [lease.part(2, 2)], delay_seconds=60)
    anybody = [Lease(id_, id_, ANY_FENCE) for id_ in (1, 2, 3, 4, 5)]
    clock.advance(11)

    with pytest.raises(LeaseLost) as lost:
        await timed_store.settle(log, anybody)

    assert sum(last - first + 1 for first, last in lost.value.lost) == 5
    assert claimed_ids(await timed_store.claim(log, limit=9, lease_seconds=10)) == [1, 3, 4]


async def test_a_claim_settles_for_whoever_holds_a_message_along_with_leases_that_are_known(
    store: Store, log: str
) -> None:
    await store.append(log, numbered(4))
    first = await store.claim(log, limit=1, lease_seconds=30)
    await store.claim(log, limit=2, lease_seconds=30)

    claim = await store.claim(log, limit=1, lease_seconds=30, settle=[Lease(3, 3, ANY_FENCE), *first.leases])

    assert claimed_ids(claim) == [4]
    assert list(claim.lost) == []
    assert (await stat_of(store, log)).held == 2


async def test_a_claim_stops_before_the_batch_that_exceeds_its_bytes(store: Store, log: str) -> None:
    blob = batch_of("x" * 1000, "y" * 1000)
    for _ in range(3):
        await store.append(log, blob)

    first = await store.claim(log, limit=100, lease_seconds=30, max_bytes=2 * len(blob))
    second = await store.claim(log, limit=100, lease_seconds=30, max_bytes=1)

    assert claimed_ids(first) == [1, 2, 3, 4]
    assert claimed_ids(second) == [5, 6]


async def test_a_claim_of_released_messages_stops_at_its_bytes_too(store: Store, log: str) -> None:
    blob = batch_of("x" * 1000, "y" * 1000)
    for _ in range(3):
        await store.append(log, blob)
    (lease,) = (await store.claim(log, limit=6, lease_seconds=30)).leases
    await store.release(log, [lease.part(1, 1), lease.part(3, 3), lease.part(4, 6)])

    first = await store.claim(log, limit=100, lease_seconds=30, max_bytes=2 * len(blob))
    second = await store.claim(log, limit=100, lease_seconds=30)

    assert claimed_ids(first) == [1, 3, 4]
    assert claimed_ids(second) == [5, 6]


async def test_stat_counts_what_is_claimable_and_what_is_held(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(10))
    (lease,) = (await timed_store.claim(log, limit=6, lease_seconds=10)).leases
    await timed_store.settle(log, [lease.part(1, 1)])
    await timed_store.release(log, [lease.part(2, 3)])

    stat = await stat_of(timed_store, log)
    assert (stat.first_id, stat.last_id, stat.head, stat.claimable, stat.held) == (1, 10, 7, 6, 3)

    clock.advance(10)
    stat = await stat_of(timed_store, log)
    assert (stat.claimable, stat.held) == (9, 0)


async def test_reading_takes_nothing_away(store: Store, log: str) -> None:
    await store.append(log, numbered(2))
    await store.read(log, after=0)

    assert claimed_ids(await store.claim(log, limit=2)) == [1, 2]
