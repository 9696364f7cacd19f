"""The decision which attempts of tasks make up a batch: one record per sink, and of its batches only the newest."""

from typing import Final

import msgspec
from msgspec import Struct

from onebus.spark.sink.staging import Attempt
from onebus.stores.base import Store

_FIELD: Final = "decision"


class Decision(Struct, frozen=True, array_like=True):
    """What a batch consists of, and whether all of it has been appended."""

    batch_id: int
    attempts: list[Attempt]
    is_done: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Decision)


class Decisions:
    """The record of one sink. Whoever changes it must have seen what it was before."""

    def __init__(self, store: Store, sink_id: str) -> None:
        self._store = store
        self._name = f"spark:{sink_id}"

    async def newest(self) -> tuple[Decision | None, int]:
        """Return the newest decision, if there is one, and the version of the record."""
        record = await self._store.get(self._name)
        if record is None:
            return None, 0
        return _decoder.decode(record.fields[_FIELD]), record.version

    async def put(self, decision: Decision, version: int) -> int:
        """Replace the decision that had this version, and return the new version.

        Raises:
            VersionConflict: somebody else has replaced it.
        """
        return await self._store.put(self._name, {_FIELD: _encoder.encode(decision)}, expected=version)
