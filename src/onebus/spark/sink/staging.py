"""What a task has written and nobody has decided on yet: batches in a log of their own, which ends by itself."""

from concurrent.futures import Future
from typing import Final
from uuid import uuid4

from msgspec import Struct

from onebus.spark.connection import Connection
from onebus.spark.sink.targets import Target

STAGED_SECONDS: Final = 24 * 3600.0
"""How long what was staged waits for its decision. A job that takes longer fails, and has written nothing."""


class Attempt(Struct, frozen=True, array_like=True):
    """What one attempt of a task has staged."""

    log: str
    targets: list[Target]
    route: list[int]
    """For each batch of the log, which of the targets it is for."""
    size: int = 0
    """The bytes of all batches."""


def staging_log(sink_id: str, batch_id: int, task: int) -> str:
    """Return the name of a log for an attempt, which no other has; a place of its own, so that they are spread."""
    return f"spark:{sink_id}:{batch_id}:{task}:{uuid4().hex}"


class Stage:
    """Puts batches into the log of an attempt, the next one being made while the last one is on its way."""

    def __init__(self, connection: Connection, log: str) -> None:
        self._connection = connection
        self._log = log
        self._on_its_way: Future[None] | None = None
        self._targets: dict[Target, int] = {}
        self._route: list[int] = []
        self._size = 0

    def add(self, target: Target, blob: bytes) -> None:
        self._wait()
        is_new = not self._route
        self._size += len(blob)
        self._route.append(self._targets.setdefault(target, len(self._targets)))
        self._on_its_way = self._connection.begin(self._append(blob, is_new=is_new))

    def finish(self) -> Attempt:
        """Return what was staged, once all of it is stored."""
        self._wait()
        return Attempt(self._log, list(self._targets), self._route, self._size)

    def discard(self) -> None:
        """Forget what was staged."""
        if self._route:
            self._connection.run(self._connection.store.drop(self._log))

    def _wait(self) -> None:
        if self._on_its_way is not None:
            on_its_way, self._on_its_way = self._on_its_way, None
            on_its_way.result()

    async def _append(self, blob: bytes, *, is_new: bool) -> None:
        store = self._connection.store
        if is_new:
            await store.touch(self._log, ttl_seconds=STAGED_SECONDS, create=True)
        await store.append(self._log, blob)
