"""Publish and subscribe for blocking code."""

from collections.abc import Generator
from typing import Any

from onebus.objects.pubsub import PubSub as AsyncPubSub
from onebus.payload import Data
from onebus.sync.events import Emitter
from onebus.sync.iteration import iterate
from onebus.sync.portal import Portal


class PubSub(Emitter):
    """A channel of the bus for those who are there; see `onebus.objects.pubsub.PubSub`. Create it with `Bus.pubsub`."""

    def __init__(self, portal: Portal, pubsub: AsyncPubSub) -> None:
        super().__init__(portal, pubsub.events)
        self._pubsub = pubsub

    @property
    def name(self) -> str:
        return self._pubsub.name

    def publish(self, data: Data) -> int:
        """Hand data to everyone who is subscribed now; see `onebus.objects.pubsub.PubSub.publish`."""
        return self._portal.call(self._pubsub.publish(data))

    def subscribe(self) -> None:
        """Receive what is published from now on, as ``message`` events. Subscribing twice does nothing."""
        self._portal.call(self._pubsub.subscribe())

    def unsubscribe(self) -> None:
        """Receive nothing more. Unsubscribing twice does nothing."""
        self._portal.call(self._pubsub.unsubscribe())

    @property
    def is_subscribed(self) -> bool:
        return self._pubsub.is_subscribed

    def detach(self) -> None:
        """Do the same as `unsubscribe`."""
        self._portal.call(self._pubsub.detach())

    def messages(self, *, timeout: float | None = None) -> Generator[Any]:
        """Iterate over what is published from the first step on; see `onebus.objects.pubsub.PubSub.messages`.

        The loop ends when nothing was published for ``timeout`` seconds.
        """
        return iterate(self._portal, self._pubsub.messages(), timeout)
