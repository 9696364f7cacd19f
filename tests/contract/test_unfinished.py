from onebus.stores.base import Span, Store
from tests.clock import FakeClock
from tests.messages import numbered


async def test_new_messages_are_unfinished_and_an_absent_log_has_none(store: Store, log: str) -> None:
    assert await store.unfinished(log) == []

    await store.append(log, numbered(3))

    assert await store.unfinished(log) == [Span(1, 3, is_held=False)]


async def test_settled_messages_are_not_unfinished_though_their_batch_is_still_there(store: Store, log: str) -> None:
    await store.append(log, numbered(5))
    claim = await store.claim(log, limit=3, lease_seconds=30)

    await store.settle(log, [claim.leases[0].part(2, 2)])

    assert await store.unfinished(log) == [
        Span(1, 1, is_held=True),
        Span(3, 3, is_held=True),
        Span(4, 5, is_held=False),
    ]


async def test_released_messages_are_held_only_while_they_are_delayed(store: Store, log: str) -> None:
    await store.append(log, numbered(4))
    (lease,) = (await store.claim(log, limit=4, lease_seconds=30)).leases

    await store.release(log, [lease.part(1, 1)])
    await store.release(log, [lease.part(2, 2)], delay_seconds=60)
    await store.settle(log, [lease.part(3, 4)])

    assert await store.unfinished(log) == [Span(1, 1, is_held=False), Span(2, 2, is_held=True)]


async def test_a_lease_that_has_ended_leaves_its_messages_claimable_or_done(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.append(log, numbered(2))
    await timed_store.claim(log, limit=1, lease_seconds=30)
    await timed_store.claim(log, limit=1, lease_seconds=30, redeliver=False)

    clock.advance(31)

    assert await timed_store.unfinished(log) == [Span(1, 1, is_held=False)]
