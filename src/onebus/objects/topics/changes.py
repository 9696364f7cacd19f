"""Tells the topics of a bus that somebody, maybe in another process, has changed what they are."""

from collections.abc import Awaitable, Callable
from typing import Final

from onebus.events import Events
from onebus.objects.ear import Ear
from onebus.stores.base import Store

CHANGED_SIGNAL: Final = "changed-topics"
"""The signal that carries the name of a topic that has more partitions now, or is gone."""

Look = Callable[[], Awaitable[None]]


class TopicChanges:
    """Those of one bus who want to know; all of them share one signal."""

    def __init__(self, events: Events) -> None:
        self._watching: dict[str, set[Look]] = {}
        self._ear = Ear(CHANGED_SIGNAL, self._hear, events)
        # What was signalled while the store was away is lost.
        events.on("online", self._look_at_all)

    async def watch(self, store: Store, topic: str, look: Look) -> None:
        """Call a function whenever a topic may have changed; returns when no such news can be missed."""
        self._watching.setdefault(topic, set()).add(look)
        await self._ear.open(store)

    async def tell(self, store: Store, topic: str) -> None:
        """Tell everybody that a topic has changed."""
        await store.signal(CHANGED_SIGNAL, topic.encode())

    async def close(self) -> None:
        self._watching.clear()
        await self._ear.close()

    async def _hear(self, payload: bytes) -> None:
        for look in tuple(self._watching.get(payload.decode(), ())):
            await look()

    async def _look_at_all(self) -> None:
        for topic in tuple(self._watching):
            await self._hear(topic.encode())
