import asyncio

import pytest

from onebus.errors import VersionConflict
from onebus.stores.base import FOREVER, Store
from tests.clock import FakeClock


async def test_a_record_that_does_not_exist_is_none(store: Store, log: str) -> None:
    assert await store.get(log) is None
    assert await store.delete(log) is False


async def test_a_put_sets_some_fields_and_leaves_the_others(store: Store, other_store: Store, log: str) -> None:
    await store.put(log, {"a": b"1", "b": b"\0\xff"})
    await other_store.put(log, {"b": b"2", "ü": b""})

    record = await store.get(log)

    assert record is not None
    assert record.fields == {"a": b"1", "b": b"2", "ü": b""}


async def test_a_field_set_to_none_goes(store: Store, log: str) -> None:
    await store.put(log, {"a": b"1", "b": b"2"})
    await store.put(log, {"a": None})

    record = await store.get(log)

    assert record is not None
    assert record.fields == {"b": b"2"}


async def test_a_record_without_fields_still_exists(store: Store, log: str) -> None:
    version = await store.put(log, {"a": None})

    record = await store.get(log)

    assert record is not None
    assert (record.version, record.fields) == (version, {})


async def test_the_version_grows_with_every_put(store: Store, log: str) -> None:
    versions = [await store.put(log, {"a": b"1"}) for _ in range(3)]

    assert versions == sorted(set(versions))
    record = await store.get(log)
    assert record is not None
    assert record.version == versions[-1]


async def test_a_put_with_an_old_version_changes_nothing(store: Store, log: str) -> None:
    old = await store.put(log, {"a": b"1"})
    await store.put(log, {"a": b"2"}, expected=old)

    with pytest.raises(VersionConflict):
        await store.put(log, {"a": b"3"}, expected=old)

    record = await store.get(log)
    assert record is not None
    assert record.fields == {"a": b"2"}


async def test_expecting_version_zero_means_that_the_record_must_not_exist(store: Store, log: str) -> None:
    await store.put(log, {"a": b"1"}, expected=0)

    with pytest.raises(VersionConflict):
        await store.put(log, {"a": b"2"}, expected=0)


async def test_of_many_who_expect_the_same_version_one_wins(store: Store, other_store: Store, log: str) -> None:
    async def create(one: Store) -> bool:
        try:
            await one.put(log, {"winner": b"me"}, expected=0)
        except VersionConflict:
            return False
        return True

    won = await asyncio.gather(*(create(one) for one in (store, other_store) * 5))

    assert won.count(True) == 1


async def test_concurrent_puts_of_different_fields_lose_nothing(store: Store, other_store: Store, log: str) -> None:
    await asyncio.gather(*(one.put(log, {f"{number}": b"x"}) for number, one in enumerate((store, other_store) * 10)))

    record = await store.get(log)
    assert record is not None
    assert len(record.fields) == 20


async def test_a_deleted_record_is_gone_and_its_versions_are_not_used_again(store: Store, log: str) -> None:
    version = await store.put(log, {"a": b"1"})
    with pytest.raises(VersionConflict):
        await store.delete(log, expected=version + 1)

    assert await store.delete(log, expected=version) is True

    assert await store.get(log) is None
    assert await store.put(log, {"a": b"1"}) != version


async def test_a_record_expires_after_its_time_to_live(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.put(log, {"a": b"1"}, ttl_seconds=10)
    clock.advance(9)
    await timed_store.put(log, {"b": b"2"})
    clock.advance(9.999)
    assert await timed_store.get(log) is not None

    clock.advance(0.001)

    assert await timed_store.get(log) is None
    await timed_store.put(log, {"c": b"3"}, expected=0)
    record = await timed_store.get(log)
    assert record is not None
    assert record.fields == {"c": b"3"}


async def test_the_time_to_live_of_a_record_can_be_removed(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.put(log, {"a": b"1"}, ttl_seconds=10)
    await timed_store.put(log, {"a": b"2"}, ttl_seconds=FOREVER)
    clock.advance(3600)

    assert await timed_store.get(log) is not None
