"""From a time to a place in a log."""

from onebus.objects.topics.stretch import stretches_after
from onebus.stores.base import Store


async def first_since(store: Store, log: str, time_ms: int, last_id: int) -> int:
    """Return the id of the first message that is not older than a time; one more than the last if all are.

    It is searched for by halves, since times grow with ids but for small differences.
    """
    low, high = 1, last_id + 1
    while low < high:
        middle = (low + high) // 2
        found = await store.read(log, after=middle - 1, limit=1)
        after = max(middle, found.first_id) - 1
        message = next((stretch.messages()[0] for stretch in stretches_after(found.batches, after)), None)
        if message is None or message.time_ms >= time_ms:
            high = middle
        else:
            low = message.id + 1
    return low
