"""Which groups of plain consumers listen to a topic, kept in the store.

They share one position. So a broker that starts again has to wait until all of them are back, or those who come first
would get what the others then miss.
"""

import asyncio
from typing import Final

from onebus.objects.topics.names import checked_group
from onebus.stores.base import Store

PLAIN_GROUP: Final = "raintank-queue"
"""The group in the store that holds the position of plain consumers."""
_PREFIX: Final = "group:"


class Audience:
    """The plain groups that have members, or had some when their broker ended, for each topic."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._present: set[tuple[str, str]] = set()
        self._changing = asyncio.Lock()

    async def enter(self, topic: str, group: str) -> set[str]:
        """Let whoever starts a broker after this one know of a group; return those that were known already."""
        self._present.add((topic, group))
        async with self._changing:
            record = await self._store.get(_place(topic))
            known = set() if record is None else {name.removeprefix(_PREFIX) for name in record.fields}
            if group not in known:
                await self._store.put(_place(topic), {_PREFIX + group: b"listens"})
            return known

    def leave(self, topic: str, group: str) -> None:
        """Hear that nobody of a group is there any more; `forget` tells the store."""
        self._present.discard((topic, group))

    async def forget(self, topic: str, group: str) -> None:
        """Wait for a group no more, unless it has come back meanwhile."""
        async with self._changing:
            if (topic, group) not in self._present:
                await self._store.put(_place(topic), {_PREFIX + group: None})


def _place(topic: str) -> str:
    return f"{checked_group(topic, PLAIN_GROUP).place}|audience"
