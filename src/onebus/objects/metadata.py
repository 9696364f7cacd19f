"""What its users note on a queue: a record that lives as long as the queue does."""

from collections.abc import Mapping
from typing import Final

from onebus.errors import InvalidArgument
from onebus.log.batch import Kind
from onebus.objects.link import Link
from onebus.payload import Data, pack_json, unpack

TTL_FIELD: Final = "ttl"
"""What the queue itself notes: for how many seconds it lives without anybody attached."""


class Metadata:
    """The notes on one queue."""

    def __init__(self, link: Link, record: str) -> None:
        self._link = link
        self._record = record

    async def all(self) -> dict[str, Data]:
        record = await self._link.store.get(self._record)
        fields = record.fields if record is not None else {}
        return {name: unpack(text, Kind.JSON) for name, text in fields.items()}

    async def note(self, values: Mapping[str, Data], ttl: float) -> None:
        """Note values, which live for `ttl` seconds unless the queue is touched."""
        if TTL_FIELD in values:
            raise InvalidArgument(f"{TTL_FIELD!r} is what the queue notes by itself; choose another key.")
        fields = {name: pack_json(value) for name, value in values.items()}
        await self._link.store.put(self._record, fields, ttl_seconds=ttl)

    async def touch(self, ttl: float) -> None:
        """Let the notes live on for `ttl` seconds."""
        await self._link.store.put(self._record, {TTL_FIELD: pack_json(ttl)}, ttl_seconds=ttl)

    async def drop(self) -> None:
        await self._link.store.delete(self._record)
