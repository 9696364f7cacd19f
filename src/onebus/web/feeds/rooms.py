"""The clients of this process that follow the same channel, so that what is published is looked at once for all."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from onebus.objects.feeds.message import FeedMessage
from onebus.objects.feeds.names import ChannelName
from onebus.objects.feeds.tail import Tail
from onebus.web.feeds.delivery import Delivery

LINGER_SECONDS: Final = 30.0
"""How long a room stays open for nobody: most clients come back at once."""


GUESTS_AT_ONCE: Final = 1000
GUESTS_PER_TURN: Final = 100
"""So many get a message at once, and of the others so many in each turn of the loop, which does other work between."""


class Guest(Protocol):
    """Whoever is in rooms."""

    def deliver(self, channel: ChannelName, delivery: Delivery) -> None:
        """Take messages of a channel, in order."""

    def fell_behind(self) -> None:
        """Hear that messages may have been missed."""

    def end(self) -> None:
        """Hear that there is nothing more to come, or nothing that would make sense."""


class Room:
    """Those who follow channels with one name, each the one of its site."""

    def __init__(self, note_lag: Callable[[int], None]) -> None:
        self._note_lag = note_lag
        self._guests: dict[ChannelName, dict[Guest, None]] = {}
        self._newest: dict[ChannelName, int] = {}
        self.opening: asyncio.Task[None] | None = None
        self.closing: asyncio.TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return not self._guests

    def enter(self, channel: ChannelName, guest: Guest) -> None:
        self._guests.setdefault(channel, {})[guest] = None

    def leave(self, channel: ChannelName, guest: Guest) -> None:
        guests = self._guests.get(channel, {})
        guests.pop(guest, None)
        if not guests:
            self._guests.pop(channel, None)

    def has_seen(self, channel: ChannelName, message_id: int) -> bool:
        """Return whether this is known to be the newest message: all that follow it will arrive here."""
        return self._newest.get(channel) == message_id

    def note(self, channel: ChannelName, message_id: int) -> None:
        """Remember the newest message of a channel, as its backlog tells it."""
        self._newest[channel] = max(message_id, self._newest.get(channel, 0))

    # What the tail brings

    def arrived(self, messages: list[FeedMessage]) -> None:
        channel = ChannelName(messages[0].channel, messages[0].site_id)
        self.note(channel, messages[-1].message_id)
        self._note_lag(messages[-1].time_ms)
        guests = self._guests.get(channel)
        if guests:
            self._hand_out(channel, Delivery(messages), tuple(guests))

    def _hand_out(self, channel: ChannelName, delivery: Delivery, guests: Sequence[Guest], start: int = 0) -> None:
        """Deliver to some guests now, and to the rest in the next turns of the loop, so that others get theirs too.

        Whoever gets a later delivery before an earlier one notices, and reads both from the backlog.
        """
        end = start + (GUESTS_PER_TURN if start else GUESTS_AT_ONCE)
        for guest in guests[start:end]:
            guest.deliver(channel, delivery)
        if end < len(guests):
            asyncio.get_running_loop().call_soon(self._hand_out, channel, delivery, guests, end)

    def fell_behind(self) -> None:
        self._newest.clear()
        for guest in self._all():
            guest.fell_behind()

    def began_anew(self) -> None:
        # Guests come back with ids that are no more, and learn where their channels stand.
        self._newest.clear()
        self.ended()

    def ended(self) -> None:
        for guest in self._all():
            guest.end()

    def _all(self) -> list[Guest]:
        return [guest for guests in self._guests.values() for guest in guests]


class Rooms:
    """A room for each name of a channel that somebody follows."""

    def __init__(self, tail: Tail, note_lag: Callable[[int], None]) -> None:
        self._tail = tail
        self._note_lag = note_lag
        """Hears of the time, in milliseconds, at which what arrives was published."""
        self._rooms: dict[str, Room] = {}

    async def enter(self, channels: Iterable[ChannelName], guest: Guest) -> None:
        """Have everything that is published on channels from now on delivered to a guest."""
        waiting = []
        for channel in channels:
            room = self._rooms.get(channel.name)
            if room is None:
                room = self._rooms[channel.name] = Room(self._note_lag)
                room.opening = asyncio.create_task(self._open(channel.name, room), name=f"onebus-room {channel.name}")
            if room.closing is not None:
                room.closing.cancel()
                room.closing = None
            room.enter(channel, guest)
            if room.opening is not None:
                waiting.append(room.opening)
        for opening in waiting:
            await asyncio.shield(opening)

    def leave(self, channels: Iterable[ChannelName], guest: Guest) -> None:
        for channel in channels:
            room = self._rooms.get(channel.name)
            if room is None:
                continue
            room.leave(channel, guest)
            if room.is_empty and room.closing is None:
                loop = asyncio.get_running_loop()
                room.closing = loop.call_later(LINGER_SECONDS, self._close, channel.name, room)

    def of(self, channel: ChannelName) -> Room | None:
        return self._rooms.get(channel.name)

    def close(self) -> None:
        """Close all rooms."""
        for name, room in list(self._rooms.items()):
            if room.closing is not None:
                room.closing.cancel()
            self._close(name, room)

    async def _open(self, name: str, room: Room) -> None:
        try:
            await self._tail.add(name, room)
        except BaseException:
            # Whoever comes next tries again.
            self._close(name, room)
            raise
        room.opening = None

    def _close(self, name: str, room: Room) -> None:
        if self._rooms.get(name) is room:
            del self._rooms[name]
        self._tail.remove(name, room)
