"""Short ways to say what goes into a log and what comes out of it."""

from collections.abc import Iterable, Sequence

from onebus.log.batch import Entry, decode, encode
from onebus.log.stored import StoredBatch
from onebus.stores.base import Claim, LogStat, Slice, Store


def batch_of(*texts: str) -> bytes:
    return encode([Entry(text.encode()) for text in texts], now_ms=1)


def numbered(count: int, start: int = 1) -> bytes:
    """A batch of the messages "1", "2", …"""
    return batch_of(*(str(number) for number in range(start, start + count)))


def texts_by_id(batches: Iterable[StoredBatch]) -> dict[int, str]:
    return {
        batch.first_id + index: value.decode()
        for batch in batches
        for index, value in enumerate(decode(batch.blob).payloads())
    }


def texts_of(found: Slice, *, after: int = 0) -> list[str]:
    return [text for id_, text in sorted(texts_by_id(found.batches).items()) if id_ > max(after, found.first_id - 1)]


def claimed_texts(claim: Claim) -> list[str]:
    texts = texts_by_id(claim.batches)
    return [texts[id_] for id_ in claimed_ids(claim)]


def claimed_ids(claim: Claim) -> Sequence[int]:
    return [id_ for lease in claim.leases for id_ in range(lease.first, lease.last + 1)]


async def stat_of(store: Store, log: str) -> LogStat:
    stat = await store.stat(log)
    assert stat is not None
    return stat
