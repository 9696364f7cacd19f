"""Messages in the batches in which they are stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebus.log.batch import Entry, Kind, encode, encode_values
from onebus.log.stored import StoredBatch
from onebus.objects.topics.stretch import cut, stretches_after


def stored(counts: list[int]) -> list[StoredBatch]:
    """Return batches of so many messages, each of which says its id."""
    batches: list[StoredBatch] = []
    last_id = 0
    for count in counts:
        values = [b"%d" % (last_id + 1 + index) for index in range(count)]
        last_id += count
        if count % 2:
            blob = encode_values(values, kind=Kind.JSON, now_ms=7)
        else:
            blob = encode([Entry(value, Kind.JSON, b"key") for value in values], now_ms=7)
        batches.append(StoredBatch(last_id, count, blob, 7))
    return batches


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 60), st.integers(1, 12))
def test_whatever_is_cut_is_complete_in_order_and_short_enough(counts: list[int], after: int, length: int) -> None:
    total = sum(counts)

    lists = list(cut(stretches_after(stored(counts), after), length))

    ids = [id_ for stretches in lists for stretch in stretches for id_ in stretch.ids]
    assert ids == list(range(after + 1, total + 1))
    messages = [message for stretches in lists for stretch in stretches for message in stretch.messages()]
    assert [(message.id, message.data) for message in messages] == [(id_, id_) for id_ in ids]
    assert [int(value) for stretches in lists for stretch in stretches for value in stretch.payloads()] == ids
    assert all(len(stretch) > 0 for stretches in lists for stretch in stretches)
    sizes = [sum(map(len, stretches)) for stretches in lists]
    assert all(size == length for size in sizes[:-1])
    assert all(0 < size <= length for size in sizes)


@pytest.mark.parametrize("count", [1, 2])
def test_a_message_keeps_what_it_was_stored_with(count: int) -> None:
    ((stretch,),) = cut(stretches_after(stored([count]), 0), 10)

    assert [message.time_ms for message in stretch.messages()] == [7] * count
    assert {message.key for message in stretch.messages()} == {None if count == 1 else b"key"}
