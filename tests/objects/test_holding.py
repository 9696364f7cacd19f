"""A holding against a simple model: three sets of ids."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebus.errors import LeaseLost
from onebus.log.claims import Lease
from onebus.objects.holding import Holding

if TYPE_CHECKING:
    from onebus.message import Message

FIRST, LAST = 11, 40


class NotedHolder:
    """Writes down what a holding asks for."""

    log = "log"
    is_over = False

    def __init__(self) -> None:
        self.acks = 0
        self.released: list[tuple[int, float]] = []
        self.extended: list[tuple[int, float | None]] = []

    def acked(self, holding: Holding, message_id: int) -> None:
        self.acks += 1

    async def release(self, leases: list[Lease], delay: float) -> None:
        self.released += [(id_, delay) for id_ in ids_of(leases)]

    async def extend(self, leases: list[Lease], seconds: float | None) -> None:
        self.extended += [(id_, seconds) for id_ in ids_of(leases)]

    async def reject(self, message: "Message", lease: Lease, reason: str) -> None:
        raise NotImplementedError


def ids_of(leases: list[Lease]) -> list[int]:
    return [id_ for lease in leases for id_ in range(lease.first, lease.last + 1)]


def held() -> tuple[Holding, NotedHolder]:
    holder = NotedHolder()
    return Holding(Lease(FIRST, LAST, fence=7, attempts=2), holder), holder


ids = st.integers(FIRST - 3, LAST + 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("hand"), st.integers(1, 10)),
        st.tuples(st.just("ack"), ids),
        st.tuples(st.just("ack_until"), ids),
        st.tuples(st.just("take_acked")),
        st.tuples(st.just("take_handed")),
        st.tuples(st.just("take_rest")),
        st.tuples(st.just("lose"), ids, st.integers(0, 10)),
        st.tuples(st.just("release"), ids),
    ),
    max_size=30,
)


class Model:
    def __init__(self) -> None:
        self.open = set(range(FIRST, LAST + 1))
        self.handed = FIRST - 1
        self.acked: set[int] = set()

    def take(self, wanted: set[int]) -> list[int]:
        taken = self.open & wanted
        self.open -= taken
        return sorted(taken)


@given(steps)
def test_a_holding_knows_what_is_handed_over_and_what_is_done(steps: list[tuple[str, *tuple[int, ...]]]) -> None:
    holding, holder = held()
    model = Model()
    for name, *values in steps:
        match name:
            case "hand":
                model.handed = min(model.handed + values[0], LAST)
                holding.handed = model.handed
            case "ack":
                holding.ack(values[0])
                model.acked.add(values[0])
            case "ack_until":
                holding.ack_until(values[0])
                model.acked |= {id_ for id_ in model.open if id_ <= min(values[0], model.handed)}
            case "take_acked":
                assert ids_of(holding.take_acked()) == model.take(model.acked)
                model.acked.clear()
            case "take_handed":
                assert ids_of(holding.take_handed()) == model.take(set(range(FIRST, model.handed + 1)))
            case "take_rest":
                assert ids_of(holding.take_rest()) == model.take(set(range(model.handed + 1, LAST + 1)))
            case "lose":
                holding.lose(values[0], values[0] + values[1])
                model.take(set(range(values[0], values[0] + values[1] + 1)))
            case "release":
                releasing = holding.release(values[0], 1.5)
                if values[0] in model.open:
                    asyncio.run(releasing)
                    assert holder.released[-1] == (values[0], 1.5)
                    model.open.discard(values[0])
                else:
                    with pytest.raises(LeaseLost):
                        asyncio.run(releasing)
        assert ids_of(holding.leases(with_handed=True)) == sorted(model.open)
        assert ids_of(holding.leases(with_handed=False)) == sorted(id_ for id_ in model.open if id_ > model.handed)
        assert holding.is_open == bool(model.open)


def test_parts_of_a_holding_keep_its_fence_and_attempts() -> None:
    holding, _ = held()
    holding.handed = 15

    (taken,) = holding.take_handed()

    assert taken == Lease(FIRST, 15, fence=7, attempts=2)


def test_the_holder_hears_once_of_acknowledgements_that_wait() -> None:
    holding, holder = held()
    holding.handed = LAST

    holding.ack(11)
    holding.ack(12)
    assert holder.acks == 1
    holding.take_acked()
    holding.ack(13)

    assert holder.acks == 2


async def test_a_held_message_can_be_extended_and_stays_held() -> None:
    holding, holder = held()

    await holding.extend(FIRST, 5.0)
    holding.lose(FIRST, FIRST)
    with pytest.raises(LeaseLost):
        await holding.extend(FIRST, None)

    assert holder.extended == [(FIRST, 5.0)]
