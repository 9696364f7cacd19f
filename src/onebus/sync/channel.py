"""A channel for blocking code."""

from typing import Any, Self

from onebus.objects.channel import Channel as AsyncChannel
from onebus.objects.queue import DEFAULT_TTL_SECONDS
from onebus.payload import Data
from onebus.sync.events import Emitter
from onebus.sync.portal import Portal
from onebus.sync.pusher import Pushed, Pusher


class Channel(Emitter):
    """One end of a channel between two peers; see `onebus.objects.channel.Channel`. Create it with `Bus.channel`."""

    def __init__(self, portal: Portal, channel: AsyncChannel) -> None:
        super().__init__(portal, channel.events)
        self._channel = channel
        self._pusher = Pusher(portal, channel.events)

    # Life

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    @property
    def name(self) -> str:
        return self._channel.name

    @property
    def local(self) -> str:
        return self._channel.local

    @property
    def remote(self) -> str:
        return self._channel.remote

    @property
    def is_attached(self) -> bool:
        return self._channel.is_attached

    @property
    def is_remote_connected(self) -> bool:
        """Whether the other peer is connected, as far as is known here."""
        return self._channel.is_remote_connected

    def connect(self, *, ttl: float = DEFAULT_TTL_SECONDS, **options: Any) -> None:
        """Connect to the channel; see `onebus.objects.channel.Channel.connect`."""
        self._portal.call(self._channel.connect(ttl=ttl, **options))

    def attach(self, *, ttl: float = DEFAULT_TTL_SECONDS, **options: Any) -> None:
        """Do the same as `connect`."""
        self._portal.call(self._channel.attach(ttl=ttl, **options))

    def listen(self, *, ttl: float = DEFAULT_TTL_SECONDS, **options: Any) -> None:
        """Connect with the roles reversed; see `onebus.objects.channel.Channel.listen`."""
        self._portal.call(self._channel.listen(ttl=ttl, **options))

    def disconnect(self) -> None:
        """Leave the channel. Disconnecting twice does nothing."""
        self._portal.call(self._channel.disconnect())

    def detach(self) -> None:
        """Do the same as `disconnect`."""
        self._portal.call(self._channel.detach())

    def end(self) -> None:
        """End the channel for both peers; see `onebus.objects.channel.Channel.end`."""
        self._portal.call(self._channel.end())

    # Sending

    def send(self, data: Data) -> int:
        """Send text, bytes or JSON to the peer, and return its id when it is stored.

        Raises:
            NotAttached: this object is not connected.
        """
        return self._pusher.push_and_wait(lambda: self._channel.send(data))

    def send_soon(self, data: Data) -> Pushed:
        """Send without waiting until it is stored; see `onebus.sync.Queue.push_soon`."""
        return self._pusher.push(lambda: self._channel.send(data))

    def send_to(self, role: str, data: Data) -> int:
        """Send to the peer with a role; see `onebus.objects.channel.Channel.send_to`."""
        return self._portal.call(self._channel.send_to(role, data))

    def ack(self, message_id: int) -> None:
        """Acknowledge a message and all before it; see `onebus.objects.queue.Queue.ack`."""
        self._portal.call(self._channel.ack(message_id))
