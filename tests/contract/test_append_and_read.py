import asyncio

import pytest

from onebus.errors import InvalidArgument
from onebus.log.stored import Twin
from onebus.stores.base import Store
from tests.messages import batch_of, numbered, texts_of


async def test_ids_start_at_one_and_are_dense(store: Store, log: str) -> None:
    first = await store.append(log, numbered(3))
    second = await store.append(log, numbered(2))

    assert (first, second) == (1, 4)


async def test_a_log_that_does_not_exist_reads_as_empty(store: Store, log: str) -> None:
    found = await store.read(log, after=0)

    assert (found.batches, found.first_id, found.last_id, found.epoch) == ((), 1, 0, "")


async def test_what_was_appended_is_read_back_in_order_and_unchanged(store: Store, log: str) -> None:
    blob = batch_of("a", "", "ü\0\r\n")
    await store.append(log, blob)
    await store.append(log, batch_of("d"))

    found = await store.read(log, after=0)

    assert found.batches[0].blob == blob
    assert texts_of(found) == ["a", "", "ü\0\r\n", "d"]
    assert [(batch.first_id, batch.last_id) for batch in found.batches] == [(1, 3), (4, 4)]


async def test_reading_after_an_id_in_the_middle_of_a_batch_begins_with_that_batch(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    await store.append(log, numbered(3, start=4))

    found = await store.read(log, after=2)

    assert texts_of(found, after=2) == ["3", "4", "5", "6"]


async def test_reading_after_the_last_id_finds_nothing(store: Store, log: str) -> None:
    await store.append(log, numbered(3))

    found = await store.read(log, after=3)

    assert not found.batches
    assert found.last_id == 3


async def test_a_read_stops_before_the_batch_that_exceeds_its_limit(store: Store, log: str) -> None:
    for start in (1, 4, 7):
        await store.append(log, numbered(3, start))

    found = await store.read(log, after=0, limit=7)

    assert texts_of(found) == ["1", "2", "3", "4", "5", "6"]


async def test_a_read_returns_one_batch_even_if_it_exceeds_every_limit(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    await store.append(log, numbered(3, start=4))

    found = await store.read(log, after=0, limit=1, max_bytes=1)

    assert texts_of(found) == ["1", "2", "3"]


async def test_a_read_stops_before_the_batch_that_exceeds_its_bytes(store: Store, log: str) -> None:
    blob = batch_of("x" * 1000)
    for _ in range(3):
        await store.append(log, blob)

    found = await store.read(log, after=0, max_bytes=2 * len(blob))

    assert len(found.batches) == 2


async def test_a_large_batch_comes_back_unchanged(store: Store, log: str) -> None:
    blob = batch_of("x" * 3_000_000)

    await store.append(log, blob)

    assert (await store.read(log, after=0)).batches[0].blob == blob


async def test_another_client_reads_what_one_client_appended(store: Store, other_store: Store, log: str) -> None:
    await store.append(log, batch_of("hello"))

    assert texts_of(await other_store.read(log, after=0)) == ["hello"]


async def test_concurrent_appends_of_two_clients_get_disjoint_dense_ids(
    store: Store, other_store: Store, log: str
) -> None:
    firsts = await asyncio.gather(*(one.append(log, numbered(2)) for one in (store, other_store) * 10))

    assert sorted(firsts) == list(range(1, 41, 2))
    assert (await store.read(log, after=0)).last_id == 40


async def test_appends_of_one_caller_one_after_the_other_have_ascending_ids(store: Store, log: str) -> None:
    ids = [await store.append(log, numbered(1)) for _ in range(20)]

    assert ids == list(range(1, 21))


async def test_a_mirrored_append_writes_both_logs_and_names_each_in_the_other(store: Store, log: str) -> None:
    channel, site = f"{log}|/chat", f"{log}|"
    await store.append(f"{log}|/other", numbered(2), mirror=site)
    await store.append(channel, numbered(3))

    first = await store.append(channel, batch_of("hi"), mirror=site)

    assert first == 4
    found = await store.read(channel, after=3)
    assert texts_of(found, after=3) == ["hi"]
    assert found.batches[-1].twin == Twin(site, 3)
    mirrored = (await store.read(site, after=2)).batches[0]
    assert (mirrored.first_id, mirrored.twin) == (3, Twin(channel, 4))


async def test_concurrent_mirrored_appends_keep_the_order_of_each_channel_in_the_site(
    store: Store, other_store: Store, log: str
) -> None:
    site = f"{log}|"
    await asyncio.gather(
        *(one.append(f"{log}|/{n % 3}", numbered(1), mirror=site) for n in range(12) for one in (store, other_store))
    )

    twins = [batch.twin for batch in (await store.read(site, after=0)).batches]

    assert len(twins) == 24
    for channel in range(3):
        ids = [twin.first_id for twin in twins if twin and twin.log == f"{log}|/{channel}"]
        assert ids == list(range(1, 9))


async def test_a_mirror_in_another_place_is_refused(store: Store, log: str) -> None:
    with pytest.raises(InvalidArgument, match="mirror"):
        await store.append(log, numbered(1), mirror="elsewhere")

    assert await store.stat(log) is None


async def test_logs_do_not_mix(store: Store, log: str) -> None:
    await store.append(log, batch_of("mine"))
    await store.append(log.upper(), batch_of("other case"))
    await store.append(f"{log} ", batch_of("trailing space"))

    assert texts_of(await store.read(log, after=0)) == ["mine"]
    assert texts_of(await store.read(log.upper(), after=0)) == ["other case"]


@pytest.mark.parametrize("name", ["ü/{curly}*?[x]", "a:b|c|d", "%41", "'; DROP TABLE onebus_log; --", "日本語 🚌"])
async def test_names_with_unusual_characters_work(store: Store, log: str, name: str) -> None:
    unusual = f"{log}:{name}"

    await store.append(unusual, batch_of("x"))

    assert texts_of(await store.read(unusual, after=0)) == ["x"]
    assert await store.list_logs(unusual) == [unusual]
