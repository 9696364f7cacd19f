"""Who is in a group: a list of those who have joined, and a sign of life of each that ends by itself."""

import asyncio
from contextlib import suppress
from uuid import uuid4

from onebus.errors import VersionConflict
from onebus.objects.topics.names import GroupName
from onebus.stores.base import Store

_PREFIX = "member:"
_PARTITIONS = "partitions"


class Membership:
    """One member of a group, from joining to leaving."""

    def __init__(self, store: Store, group: GroupName, lease_seconds: float) -> None:
        self.id = uuid4().hex
        self._store = store
        self._group = group
        self._lease_seconds = lease_seconds

    async def join(self) -> None:
        # Whoever is listed without a sign of life is taken for dead.
        await self.renew()
        await self._store.put(self._group.place, {_PREFIX + self.id: b"joined"})

    async def begin(self, partitions: int) -> int:
        """Return how many partitions the topic had when the group began; if it begins now, that is `partitions`."""
        while True:
            record = await self._store.get(self._group.place)
            if record is not None and _PARTITIONS in record.fields:
                return int(record.fields[_PARTITIONS])
            fields = {_PARTITIONS: str(partitions).encode()}
            with suppress(VersionConflict):
                await self._store.put(self._group.place, fields, expected=0 if record is None else record.version)

    async def renew(self) -> None:
        """Be alive for as long as a lease lasts."""
        await self._store.put(self._group.member(self.id), {"lease": b"held"}, ttl_seconds=self._lease_seconds)

    async def leave(self) -> None:
        await self._store.put(self._group.place, {_PREFIX + self.id: None})
        await self._store.delete(self._group.member(self.id))

    async def living(self) -> list[str]:
        """Return everybody who is alive, and strike those off the list who are not."""
        listed = await members_of(self._store, self._group)
        signs = await asyncio.gather(*(self._store.get(self._group.member(one)) for one in listed))
        living = [one for one, sign in zip(listed, signs, strict=True) if sign is not None]
        dead = {_PREFIX + one: None for one in listed if one not in living and one != self.id}
        if dead:
            await self._store.put(self._group.place, dead)
        if self.id not in living:
            # It was frozen for so long that others took it for dead.
            await self.join()
            living.append(self.id)
        return living


async def members_of(store: Store, group: GroupName) -> list[str]:
    """Return who is listed, alive or not."""
    record = await store.get(group.place)
    return [] if record is None else [name.removeprefix(_PREFIX) for name in record.fields if name.startswith(_PREFIX)]
