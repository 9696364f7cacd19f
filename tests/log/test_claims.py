from hypothesis import given
from hypothesis import strategies as st

from onebus.log.claims import ANY_FENCE, FREE, NO_FENCE, Hold, HoldTable, Lease, carve


def hold(first: int, last: int, fence: int = 1) -> Hold:
    return Hold(first, last, fence, due_ms=1000, attempts=1)


def ranges(holds: list[Hold]) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in holds]


def test_carving_the_middle_leaves_both_ends() -> None:
    carving = carve([hold(1, 10)], [Lease(4, 6, fence=1)], now_ms=0)

    assert ranges(carving.taken) == [(4, 6)]
    assert ranges(carving.rest) == [(1, 3), (7, 10)]
    assert carving.lost == []


def test_carving_names_what_others_hold_or_nobody() -> None:
    carving = carve([hold(1, 3), hold(4, 6, fence=2), hold(9, 10)], [Lease(2, 12, fence=1)], now_ms=0)

    assert ranges(carving.taken) == [(2, 3), (9, 10)]
    assert carving.lost == [(4, 8), (11, 12)]


def test_carving_the_same_ids_twice_loses_them_the_second_time() -> None:
    carving = carve([hold(1, 3)], [Lease(1, 3, fence=1), Lease(2, 2, fence=1)], now_ms=0)

    assert ranges(carving.taken) == [(1, 3)]
    assert carving.lost == [(2, 2)]


def test_any_fence_stands_for_whoever_holds_the_ids_now() -> None:
    released = Hold(4, 4, NO_FENCE, due_ms=2000, attempts=1)
    ended = Hold(5, 5, fence=3, due_ms=1000, attempts=1)
    free = Hold(6, 6, fence=3, due_ms=FREE, attempts=1)
    held = [Hold(1, 2, fence=1, due_ms=1001, attempts=1), Hold(3, 3, fence=2, due_ms=2000, attempts=1)]

    carving = carve([*held, released, ended, free], [Lease(2, 7, ANY_FENCE)], now_ms=1000)

    assert ranges(carving.taken) == [(2, 2), (3, 3)]
    assert carving.lost == [(4, 7)]


spans = st.tuples(st.integers(1, 60), st.integers(0, 12), st.integers(1, 3))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 3))), st.lists(spans, max_size=6))
def test_carving_accounts_for_every_id(layout: list[tuple[int, int, int]], wanted: list[tuple[int, int, int]]) -> None:
    holds, at = [], 1
    for gap, size, fence in layout:
        holds.append(hold(at + gap, at + gap + size - 1, fence))
        at += gap + size
    owner = {id_: one.fence for one in holds for id_ in range(one.first, one.last + 1)}

    carving = carve(holds, [Lease(first, first + size, fence) for first, size, fence in wanted], now_ms=0)

    taken, lost = [], []
    for first, size, fence in wanted:
        for id_ in range(first, first + size + 1):
            if owner.get(id_) == fence:
                taken.append(id_)
                del owner[id_]
            else:
                lost.append(id_)
    assert sorted(id_ for one in carving.taken for id_ in range(one.first, one.last + 1)) == sorted(taken)
    assert sorted(id_ for first, last in carving.lost for id_ in range(first, last + 1)) == sorted(lost)
    kept = [one for one in holds if one not in carving.touched] + carving.rest
    assert sorted(id_ for one in kept for id_ in range(one.first, one.last + 1)) == sorted(owner)


def test_the_table_does_not_grow_with_leases_that_are_extended_for_ever() -> None:
    table = HoldTable()
    table.add(hold(1, 1))
    for due_ms in range(2000, 12_000):
        (current,) = table
        table.carve([current.lease()], now_ms=0)
        table.add(Hold(1, 1, fence=1, due_ms=due_ms, attempts=1))

    assert len(table._due) < 1000
    assert table.next_due_ms() == 11_999
