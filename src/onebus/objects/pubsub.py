"""Plain publish and subscribe: whoever is subscribed now receives what is published now, and nothing is stored."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from onebus.errors import PayloadTooLarge, StoreClosed
from onebus.events import Emitter
from onebus.log.batch import Kind
from onebus.objects.ear import Ear
from onebus.objects.link import Link
from onebus.objects.places import place_of_object
from onebus.payload import Data, pack, unpack


class PubSub(Emitter):
    """A channel of the bus for those who are there. Create it with `Bus.pubsub`.

    Delivery: at most once. Order: as published by one client, one after the other.

    Events: ``subscribed``, ``unsubscribed``, ``message`` (data), ``error`` (error).
    """

    def __init__(self, link: Link, name: str) -> None:
        super().__init__()
        self.name = name
        self._link = link
        self._signal = place_of_object("pubsub", name)
        self._ear = Ear(self._signal, self._hear, self.events)

    async def publish(self, data: Data) -> int:
        """Hand data to everyone who is subscribed now, and return how many clients that is.

        A client is a bus: its subscribers share one subscription, and all of them receive the data.

        Raises:
            NotSerializable, PayloadTooLarge: the data cannot be sent.
        """
        value, kind = pack(data)
        most = self._link.limits.max_message_bytes
        if len(value) > most:
            raise PayloadTooLarge(
                f"A message of {len(value)} bytes exceeds the limit of {most}; send less, or raise max_message_bytes."
            )
        return await self._link.store.signal(self._signal, bytes([kind]) + value)

    async def subscribe(self) -> None:
        """Receive what is published from now on, as ``message`` events. Subscribing twice does nothing."""
        if await self._ear.open(self._link.store):
            self._link.enter(self)
            await self.events.emit("subscribed")

    async def unsubscribe(self) -> None:
        """Receive nothing more; publishing is still possible. Unsubscribing twice does nothing."""
        if self.is_subscribed:
            await self._ear.close()
            self._link.leave(self)
            await self.events.emit("unsubscribed")

    @property
    def is_subscribed(self) -> bool:
        return self._ear.is_open

    async def detach(self) -> None:
        await self.unsubscribe()

    async def messages(self) -> AsyncGenerator[Any]:
        """Subscribe, and iterate over what is published, until the loop is left or the bus is disconnected.

        Raises:
            SignalsMissed: the loop is so slow that messages had to be dropped.
        """
        with suppress(StoreClosed):
            async with self._link.store.listen(self._signal) as payloads:
                async for payload in payloads:
                    yield _unpack(payload)

    async def _hear(self, payload: bytes) -> None:
        await self.events.emit("message", _unpack(payload))


def _unpack(payload: bytes) -> Any:
    return unpack(payload[1:], Kind(payload[0]))
