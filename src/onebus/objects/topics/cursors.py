"""How far a group has come in each partition, and who reads on from there.

Whoever takes a partition changes its record, and whoever commits names the version that it knows. So a member that was
frozen, or cut off, and lost its partition meanwhile, cannot move the position any more, however late it comes.
"""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onebus.objects.topics.names import GroupName
from onebus.stores.base import Store

_FIELD = "cursor"
NOBODY = ""


class Cursor(Struct, frozen=True):
    """A place in a partition."""

    owner: str = NOBODY
    fence: int = 0
    """Grows whenever the partition is taken."""
    position: int | None = None
    """The last message that is done; None if nobody has begun."""
    epoch: str = ""
    """The life of the log in which that message is; a partition that was deleted and made again has another."""
    moves: int = 0
    """How often somebody who does not own the partition has moved the position."""
    version: int = 0
    """Of the record; 0 if there is none."""


class Cursors:
    """The cursors of one group. Every change raises `VersionConflict` if somebody else was faster."""

    def __init__(self, store: Store, group: GroupName) -> None:
        self._store = store
        self._group = group

    async def get(self, partition: int) -> Cursor:
        record = await self._store.get(self._group.cursor(partition))
        if record is None:
            return Cursor()
        return replace(msgspec.json.decode(record.fields[_FIELD], type=Cursor), version=record.version)

    async def take(self, partition: int, old: Cursor, owner: str, position: int, epoch: str) -> Cursor:
        """Become the owner."""
        return await self._put(
            partition, replace(old, owner=owner, fence=old.fence + 1, position=position, epoch=epoch)
        )

    async def commit(self, partition: int, old: Cursor, position: int, epoch: str) -> Cursor:
        """Move the position on, as its owner."""
        return await self._put(partition, replace(old, position=position, epoch=epoch))

    async def move(self, partition: int, old: Cursor, position: int, epoch: str) -> Cursor:
        """Move the position anywhere, as somebody else; its owner notices."""
        return await self._put(partition, replace(old, position=position, epoch=epoch, moves=old.moves + 1))

    async def release(self, partition: int, old: Cursor) -> Cursor:
        """Leave the partition to whoever takes it."""
        return await self._put(partition, replace(old, owner=NOBODY))

    async def forget(self, partition: int) -> None:
        await self._store.delete(self._group.cursor(partition))

    async def _put(self, partition: int, new: Cursor) -> Cursor:
        fields = {_FIELD: msgspec.json.encode(new)}
        version = await self._store.put(self._group.cursor(partition), fields, expected=new.version)
        return replace(new, version=version)
