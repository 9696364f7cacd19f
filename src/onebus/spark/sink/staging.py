"""What a task has written and nobody has decided on yet: batches in staging logs, which end by themselves."""

from collections import deque
from concurrent.futures import Future, wait
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from onebus.log.batch import count_of
from onebus.log.names import place_of
from onebus.spark.connection import Connection
from onebus.spark.sink.targets import Target
from onebus.stores.base import Store, staging_gone

STAGED_SECONDS: Final = 24 * 3600.0
"""How long what was staged waits for its decision. A job that takes longer fails, and has written nothing."""
AT_ONCE: Final = 4
"""How many batches of a task are on their way to the store while the next one is made."""


class Cargo(Struct, frozen=True, array_like=True):
    """What a task has staged for the targets of one place, such as the partitions of a topic."""

    log: str
    targets: list[Target]
    batches: list[tuple[int, int]]
    """For each batch, in order, which of the targets it is for, and its last id in the staging log."""


class Attempt(Struct, frozen=True, array_like=True):
    """What one attempt of a task has staged."""

    cargos: list[Cargo]


class Stage:
    """Puts batches into staging logs, each beside the log that it is for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cargos: dict[str, _Loading] = {}
        self._on_their_way: deque[_OnItsWay] = deque()

    def add(self, target: Target, log: str, blob: bytes) -> None:
        """Stage a batch for a target, whose messages are in `log`."""
        store = self._connection.store
        place = place_of(log)
        cargo = self._cargos.get(place)
        if cargo is None:
            staging = self._connection.run(store.stage(log, ttl_seconds=STAGED_SECONDS))
            cargo = self._cargos[place] = _Loading(staging, {}, [])
        if len(self._on_their_way) == AT_ONCE:
            self._wait()
        target_number = cargo.targets.setdefault(target, len(cargo.targets))
        # It need not be on disk before there is a decision on it.
        appending = self._connection.begin(_append(store, cargo.log, blob))
        self._on_their_way.append(_OnItsWay(cargo, target_number, appending))

    def finish(self) -> Attempt:
        """Return what was staged, once all of it is stored.

        Raises:
            StagingLost: a server has forgotten some of it, which did not wait for its disk, and has gone on without.
        """
        while self._on_their_way:
            self._wait()
        return Attempt([cargo.complete() for cargo in self._cargos.values()])

    def discard(self) -> None:
        """Forget what was staged."""
        # What would arrive later would stay.
        wait([appending for _, _, appending in self._on_their_way])
        for cargo in self._cargos.values():
            self._connection.run(self._connection.store.drop(cargo.log))

    def _wait(self) -> None:
        cargo, target_number, appending = self._on_their_way.popleft()
        first_id, last_id = appending.result()
        cargo.batches.append((target_number, first_id, last_id))


class _Loading(NamedTuple):
    """A cargo to which batches are added."""

    log: str
    targets: dict[Target, int]
    batches: list[tuple[int, int, int]]
    """For each batch, in order, which of the targets it is for, and its first and last id in the staging log."""

    def complete(self) -> Cargo:
        """Return the cargo, if the ids of its batches follow each other, as no others are in this log."""
        ranges = sorted((first_id, last_id) for _, first_id, last_id in self.batches)
        if any(following != last_id + 1 for (_, last_id), (following, _) in pairwise(ranges)):
            raise staging_gone(self.log)
        return Cargo(
            self.log, list(self.targets), [(target_number, last_id) for target_number, _, last_id in self.batches]
        )


class _OnItsWay(NamedTuple):
    """A batch that is not known to be stored yet."""

    cargo: _Loading
    target_number: int
    appending: "Future[tuple[int, int]]"


async def _append(store: Store, log: str, blob: bytes) -> tuple[int, int]:
    """Append a batch, and return its first and last id."""
    first_id = await store.append(log, blob, durable=False)
    return first_id, first_id + count_of(blob) - 1
