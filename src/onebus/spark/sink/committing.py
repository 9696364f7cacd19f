"""The driver's half of a write: it decides which attempts of tasks count, and moves what they have staged.

A batch that Spark runs again after a crash may be cut into other tasks, whose rows go elsewhere: what the first run has
begun to append and what the second one has staged do not fit together. So the store first notes, in one record, which
attempts the batch consists of; from then on nothing else counts, whoever finishes it. The appends carry marks, so that
each happens once. What was staged is kept until all of it has arrived.

    stage ──▸ decide ──▸ keep ──▸ append, append, … ──▸ done ──▸ drop

A crash before *decide* leaves what nobody asks for, which ends by itself. A crash after it leaves a decision that the
next run of the batch finishes. Nothing is appended before all that was decided is kept for good: so where something of
it is missing, nothing has been appended, and the decision may be made anew.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from onebus.errors import StagingLost, VersionConflict
from onebus.spark.sink.appending import Appending, in_parallel, loads_of
from onebus.spark.sink.decisions import Decision, Decisions
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.staging import Attempt, Cargo
from onebus.stores.base import FOREVER, Store


class Committing:
    """Commits the batches of one sink, each once."""

    def __init__(self, store: Store, options: WriteOptions, sink_id: str) -> None:
        self._store = store
        self._options = options
        self._source = f"spark:{sink_id}"
        self._decisions = Decisions(store, sink_id)

    async def commit(self, batch_id: int, attempts: Sequence[Attempt]) -> None:
        """Append what the attempts have staged, unless the batch, or a later one, was decided before.

        Raises:
            StagingLost: what was staged has waited for too long.
        """
        while True:
            try:
                newest, version = await self._decisions.newest()
                if newest is not None and not newest.is_done and await self._keep(newest):
                    newest, version = await self._finish(newest, version)
                if newest is None or newest.batch_id < batch_id or not newest.is_done:
                    await self._check_successor(newest, version, batch_id)
                    await self._decide(Decision(batch_id, list(attempts)), version)
                else:
                    # What was decided is still there if the crash came just before it was dropped.
                    await self._drop([*newest.attempts, *attempts])
            except VersionConflict:
                # Somebody else is finishing the same batch, or has done so.
                continue
            return

    async def commit_once(self, attempts: Sequence[Attempt]) -> None:
        """Append what the attempts of a sink have staged that nobody will ever start again."""
        appending = Appending(self._store, self._options, self._source, 0)
        await appending.run(attempts)
        await appending.unmark()
        await self._drop(attempts)
        await appending.finish()

    async def abort(self, attempts: Sequence[Attempt]) -> None:
        """Forget what the attempts have staged, except for what has been decided."""
        newest, _ = await self._decisions.newest()
        decided = [] if newest is None or newest.is_done else newest.attempts
        await self._drop([attempt for attempt in attempts if attempt not in decided])

    async def _check_successor(self, newest: Decision | None, version: int, batch_id: int) -> None:
        if newest is None or newest.is_done or newest.batch_id == batch_id:
            return
        await self._check_unchanged(version)
        raise StagingLost(
            f"What was staged for batch {newest.batch_id} of {self._source!r} is gone, and nothing of it was written. "
            f"Batch {batch_id} cannot take its place: run batch {newest.batch_id} again, from its checkpoint."
        )

    async def _decide(self, decision: Decision, version: int) -> None:
        if not loads_of(decision.attempts):
            return
        version = await self._decisions.put(decision, version)
        if not await self._keep(decision):
            await self._check_unchanged(version)
            raise StagingLost(
                f"What was staged for batch {decision.batch_id} of {self._source!r} has waited for too long, and is "
                "gone. Nothing of it was written: run it again."
            )
        await self._finish(decision, version)

    async def _keep(self, decision: Decision) -> bool:
        """Let what was staged stay until it is dropped, and return whether all of it is there."""
        return all(await in_parallel(self._keep_cargo(cargo) for cargo in _cargos(decision.attempts)))

    async def _keep_cargo(self, cargo: Cargo) -> bool:
        if not await self._store.touch(cargo.log, ttl_seconds=FOREVER):
            return False
        # It did not wait for the disk: of what was staged last, a machine that has crashed since may know nothing.
        stat = await self._store.stat(cargo.log)
        return stat is not None and stat.last_id >= max(last_id for _, last_id in cargo.batches)

    async def _finish(self, decision: Decision, version: int) -> tuple[Decision, int]:
        appending = Appending(self._store, self._options, self._source, decision.batch_id)
        try:
            await appending.run(decision.attempts)
        except StagingLost:
            await self._check_unchanged(version)
            raise
        done = replace(decision, is_done=True)
        version = await self._decisions.put(done, version)
        await self._drop(decision.attempts)
        await appending.finish()
        return done, version

    async def _check_unchanged(self, version: int) -> None:
        """Check that what is missing was not dropped by somebody else, who has finished the same batch.

        Raises:
            VersionConflict: somebody else has.
        """
        if (await self._decisions.newest())[1] != version:
            raise VersionConflict(f"Somebody else has finished the batch of {self._source!r}.")

    async def _drop(self, attempts: Sequence[Attempt]) -> None:
        await in_parallel(self._store.drop(cargo.log) for cargo in _cargos(attempts))


def _cargos(attempts: Sequence[Attempt]) -> list[Cargo]:
    return [cargo for attempt in attempts for cargo in attempt.cargos]
