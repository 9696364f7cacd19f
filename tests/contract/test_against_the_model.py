"""Random histories of one log, on every store, compared with the model step by step."""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from onebus.errors import LeaseLost, LogFull
from onebus.log.claims import ANY_FENCE, Lease
from onebus.log.retention import KEEP_ALL, Retention
from onebus.stores.base import Store, StoreOptions
from tests.backings import KINDS, Backing
from tests.clock import FakeClock
from tests.contract.model import ModelLog
from tests.messages import batch_of, claimed_ids, claimed_texts, texts_by_id

T = TypeVar("T")

EXAMPLES = {"memory": 150, "sqlite": 60}
OTHER_EXAMPLES = 25

seconds = st.sampled_from([0.5, 1.0, 3.0, 10.0])
parts = st.tuples(st.integers(0, 4), st.integers(0, 8), st.integers(0, 8), st.booleans())
"""Which of the newest leases, from which to which of its ids, and whether its fence is known."""

Part = tuple[int, int, int, bool]


class LogMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model."""

    runner: asyncio.Runner
    store: Store
    clock: FakeClock

    def __init__(self) -> None:
        super().__init__()
        self.log = f"model:{uuid4().hex}"
        self.model = ModelLog()
        self.exists = False
        self.leases: list[Lease] = []
        self.appended = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def expire(self) -> None:
        if 0 < self.model.expires_ms <= self.clock.now_ms:
            self.model, self.exists, self.leases = ModelLog(), False, []

    def teardown(self) -> None:
        self.run(self.store.drop(self.log))

    def some_leases(self, chosen: Sequence[Part]) -> list[Lease]:
        """Parts of recent leases, which are mostly held, and sometimes not any more."""
        leases = []
        for index, one, other, is_known in chosen:
            lease = self.leases[-1 - index % len(self.leases)]
            first, last = sorted(lease.first + offset % lease.count for offset in (one, other))
            leases.append(lease.part(first, last) if is_known else Lease(first, last, ANY_FENCE))
        return leases

    def split_by_fate(self, leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
        """Return which ids the leases hold and which they have lost; what is named twice is lost the second time."""
        held: list[int] = []
        lost: list[int] = []
        for lease in leases:
            now_held, now_lost = self.model.held_by(lease, self.clock.now_ms)
            lost += now_lost + [id_ for id_ in now_held if id_ in held]
            held += [id_ for id_ in now_held if id_ not in held]
        return held, lost

    def expect_loss(self, change: Coroutine[Any, Any, None], lost: Sequence[int]) -> None:
        if not lost:
            self.run(change)
            return
        with pytest.raises(LeaseLost) as caught:
            self.run(change)
        named = {id_ for first, last in caught.value.lost for id_ in range(first, last + 1)}
        assert named == set(lost)

    @rule(
        count=st.integers(1, 7),
        capacity=st.sampled_from([None, None, 4, 10, 25]),
        max_count=st.sampled_from([None, None, None, 6, 20]),
    )
    def append(self, count: int, capacity: int | None, max_count: int | None) -> None:
        self.expire()
        texts = [f"message {self.appended + number}" for number in range(count)]
        self.appended += count
        retain = KEEP_ALL if max_count is None else Retention(max_count=max_count)
        append = self.store.append(self.log, batch_of(*texts), capacity=capacity, retain=retain)

        room = self.model.room_if_full(count, capacity, max_count)
        if room is not None:
            with pytest.raises(LogFull) as caught:
                self.run(append)
            assert caught.value.room == room
            return

        assert self.run(append) == self.model.append(texts, self.clock.now_ms)
        self.exists = True
        if max_count is not None:
            self.model.trim(max_count)

    @rule(
        limit=st.integers(1, 9),
        lease_seconds=st.sampled_from([None, 1.0, 3.0, 10.0, 60.0]),
        redeliver=st.sampled_from([True, True, False]),
        settle=st.lists(parts, max_size=2),
    )
    def claim(self, limit: int, lease_seconds: float | None, redeliver: bool, settle: list[Part]) -> None:
        self.expire()
        settled = self.some_leases(settle) if self.leases else []
        held, lost = self.split_by_fate(settled)
        self.model.settle(held)
        lease_ms = None if lease_seconds is None else round(lease_seconds * 1000)

        claim = self.run(
            self.store.claim(self.log, limit=limit, lease_seconds=lease_seconds, redeliver=redeliver, settle=settled)
        )

        assert {id_ for first, last in claim.lost for id_ in range(first, last + 1)} == set(lost)
        expected = self.model.claim(limit, lease_ms, redeliver, self.clock.now_ms)
        assert list(claimed_ids(claim)) == expected
        assert claimed_texts(claim) == [self.model.messages[id_].text for id_ in expected]
        attempts = [lease.attempts for lease in claim.leases for _ in range(lease.count)]
        assert attempts == [self.model.messages[id_].attempts for id_ in expected]
        if lease_ms is not None:
            self.model.hold(claim.leases)
            self.leases.extend(claim.leases)

    @precondition(lambda self: self.leases)
    @rule(chosen=st.lists(parts, min_size=1, max_size=3))
    def settle(self, chosen: list[Part]) -> None:
        self.expire()
        leases = self.some_leases(chosen) if self.leases else []
        held, lost = self.split_by_fate(leases)
        if leases:
            self.expect_loss(self.store.settle(self.log, leases), lost)
        self.model.settle(held)

    @precondition(lambda self: self.leases)
    @rule(
        chosen=st.lists(parts, min_size=1, max_size=3),
        delay=st.sampled_from([0.0, 0.0, 0.5, 3.0]),
        attempted=st.booleans(),
    )
    def release(self, chosen: list[Part], delay: float, attempted: bool) -> None:
        self.expire()
        leases = self.some_leases(chosen) if self.leases else []
        held, lost = self.split_by_fate(leases)
        if leases:
            change = self.store.release(self.log, leases, delay_seconds=delay, attempted=attempted)
            self.expect_loss(change, lost)
        due_ms = self.clock.now_ms + round(delay * 1000) if delay else 0
        self.model.release(held, due_ms, attempted)

    @precondition(lambda self: self.leases)
    @rule(chosen=st.lists(parts, min_size=1, max_size=2), lease_seconds=seconds)
    def extend(self, chosen: list[Part], lease_seconds: float) -> None:
        self.expire()
        leases = self.some_leases(chosen) if self.leases else []
        held, lost = self.split_by_fate(leases)
        if leases:
            self.expect_loss(self.store.extend(self.log, leases, lease_seconds=lease_seconds), lost)
        self.model.extend(held, self.clock.now_ms + round(lease_seconds * 1000))

    @rule(passing=seconds)
    def time_passes(self, passing: float) -> None:
        self.clock.advance(passing)

    @rule(max_count=st.integers(4, 40))
    def trim(self, max_count: int) -> None:
        self.expire()
        self.model.trim(max_count)

        assert self.run(self.store.trim(self.log, Retention(max_count=max_count))) == self.model.first_id

    @precondition(lambda self: len(self.model.messages) > 25)
    @rule()
    def clear(self) -> None:
        self.expire()
        self.run(self.store.clear(self.log))
        self.model.trim(0)

    @rule(ttl_seconds=st.sampled_from([None, 0.0, 12.0, 60.0]), create=st.booleans())
    def touch(self, ttl_seconds: float | None, create: bool) -> None:
        self.expire()

        existed = self.run(self.store.touch(self.log, ttl_seconds=ttl_seconds, create=create))

        assert existed == self.exists
        if existed or create:
            self.exists = True
            new_ttl_ms = None if ttl_seconds is None or (existed and create) else round(ttl_seconds * 1000)
            self.model.touch(new_ttl_ms, self.clock.now_ms)

    @invariant()
    def the_log_is_what_the_model_says(self) -> None:
        self.expire()
        stat = self.run(self.store.stat(self.log))
        if not self.exists:
            assert stat is None
            return
        assert stat is not None
        now_ms, model = self.clock.now_ms, self.model
        assert (stat.first_id, stat.last_id) == (model.first_id, model.last_id)
        assert stat.ttl_seconds == model.ttl_ms / 1000
        assert (stat.claimable, stat.held) == (model.claimable(now_ms), model.held(now_ms))
        readable = texts_by_id(self.run(self.store.read(self.log, after=0)).batches)
        assert model.open_texts().items() <= readable.items()


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
def test_a_log_behaves_like_the_model(kind: str, request: pytest.FixtureRequest) -> None:
    clock = FakeClock()
    backing = Backing(kind, request.getfixturevalue)
    with asyncio.Runner() as runner:
        store = runner.run(backing.open(StoreOptions(clock=clock)))

        class Machine(LogMachine):
            pass

        Machine.runner, Machine.store, Machine.clock = runner, store, clock
        examples = EXAMPLES.get(kind, OTHER_EXAMPLES) * int(os.environ.get("ONEBUS_MODEL_EXAMPLES", "1"))
        try:
            run_state_machine_as_test(
                Machine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
            )
        finally:
            runner.run(backing.close())
