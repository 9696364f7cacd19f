import pytest

from onebus.errors import CorruptBatch, InvalidArgument, InvalidName, PayloadTooLarge, StoreClosed
from onebus.log.retention import Retention
from onebus.stores.base import Store, StoreOptions
from tests.backings import Backing
from tests.messages import batch_of, numbered


@pytest.mark.parametrize("name", ["", "x" * 256, "ü" * 128, "a\nb", "nul\0", "\x7f", "\ud800", "|x", "onebus:x", 7])
async def test_a_bad_name_is_refused_everywhere(store: Store, name: str) -> None:
    for call in (
        lambda: store.append(name, numbered(1)),
        lambda: store.read(name, after=0),
        lambda: store.claim(name, limit=1),
        lambda: store.touch(name, create=True),
        lambda: store.put(name, {"a": b"1"}),
        lambda: store.signal(name, b""),
    ):
        with pytest.raises(InvalidName):
            await call()


async def test_the_longest_name_works(store: Store, log: str) -> None:
    name = log + "x" * (255 - len(log))

    await store.append(name, numbered(1))

    assert await store.list_logs(name) == [name]


async def test_a_batch_over_the_limit_is_refused_and_nothing_is_stored(backing: Backing, log: str) -> None:
    store = await backing.open(StoreOptions(max_batch_bytes=1000))

    with pytest.raises(PayloadTooLarge, match="max_batch_bytes"):
        await store.append(log, batch_of("x" * 1000))

    assert await store.stat(log) is None


async def test_bytes_that_are_no_batch_are_refused(store: Store, log: str) -> None:
    with pytest.raises(CorruptBatch):
        await store.append(log, b"hello")

    assert await store.stat(log) is None


async def test_numbers_that_make_no_sense_are_refused(store: Store, log: str) -> None:
    for call in (
        lambda: store.append(log, numbered(1), capacity=0),
        lambda: store.append(log, numbered(1), capacity=-1),
        lambda: store.claim(log, limit=0),
        lambda: store.claim(log, limit=1, lease_seconds=0),
        lambda: store.claim(log, limit=1, lease_seconds=float("nan")),
        lambda: store.read(log, after=0, limit=-1),
        lambda: store.release(log, [], delay_seconds=-1),
        lambda: store.touch(log, ttl_seconds=-1),
        lambda: store.put(log, {}),
    ):
        with pytest.raises(InvalidArgument):
            await call()
    with pytest.raises(InvalidArgument):
        Retention(max_count=-1)


async def test_a_closed_store_says_so(backing: Backing, log: str) -> None:
    store = await backing.open()
    await store.close()
    await store.close()

    with pytest.raises(StoreClosed, match="open it first"):
        await store.append(log, numbered(1))


async def test_a_closed_store_can_be_opened_again(backing: Backing, store: Store, log: str) -> None:
    other = await backing.open()
    await other.close()
    await other.open()

    await other.append(log, numbered(1))

    assert await store.stat(log) is not None
