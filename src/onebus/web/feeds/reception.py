"""Finds out who is at the door and what it may follow, and keeps count of who is held there."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from onebus.bus import Bus
from onebus.errors import BusError, NotAttached
from onebus.objects.feeds.names import ChannelName, channel_name
from onebus.web.feeds.findings import DENIED, EPOCH, Findings
from onebus.web.feeds.held import Held
from onebus.web.feeds.listener import Listener
from onebus.web.feeds.rooms import Rooms
from onebus.web.feeds.settings import FeedSettings
from onebus.web.feeds.visitor import Visitor
from onebus.web.feeds.wishes import Wishes
from onebus.web.request import Request
from onebus.web.traffic import Traffic

T = TypeVar("T")

Places = Mapping[ChannelName, int | None]
"""Channels, and where in them a client wants to begin."""


class ChannelDenied(BusError):
    """The client may not follow any of the channels that it asked for."""

    code = "channel_denied"

    def __init__(self, channels: Sequence[str]) -> None:
        super().__init__(f"You may not follow {', '.join(channels)}.")
        self.channels = channels


class Reception:
    """Receives the clients of a door, whatever their transport is."""

    def __init__(self, bus: Bus, settings: FeedSettings) -> None:
        self._bus = bus
        self.settings = settings
        self.traffic = Traffic()
        self._rooms = Rooms(bus.feeds.tail, self._note_lag)
        self.held = Held(settings.max_active_clients)

    @property
    def is_on(self) -> bool:
        """Whether anybody may be held."""
        return self._bus.feeds.is_on

    def close(self) -> None:
        """Send everybody home."""
        self.held.end_all()
        self._rooms.close()

    # Who is there

    async def visitor(self, request: Request, client_id: str) -> Visitor:
        """Return who a request comes from."""
        settings = self.settings
        user_id = await outcome(settings.user_id_lookup(request)) if settings.user_id_lookup else None
        group_ids = await outcome(settings.group_ids_lookup(request)) if settings.group_ids_lookup else None
        return Visitor(client_id, request, user_id, group_ids or (), await self.site(request), settings.filters)

    async def site(self, request: Request) -> str | None:
        """Return for which site a request is."""
        if self.settings.site_id_lookup is not None:
            return await outcome(self.settings.site_id_lookup(request))
        lookup = self._bus.feeds.site_id_lookup
        return None if lookup is None else lookup()

    async def is_admin(self, request: Request) -> bool:
        lookup = self.settings.is_admin_lookup
        return lookup is not None and await outcome(lookup(request))

    async def extra_headers(self, request: Request) -> Mapping[str, str]:
        lookup = self.settings.extra_response_headers_lookup
        return {} if lookup is None else await outcome(lookup(request))

    # What it may follow

    def listener(self, visitor: Visitor) -> Listener:
        self._bus.link.on_disconnect(self.close)
        return Listener(visitor, self._bus.feeds.backlogs, self._rooms)

    async def begin(self, listener: Listener, wishes: Wishes, *, is_live: bool) -> Findings:
        """Let a client begin to follow channels, and return what it finds there.

        Raises:
            ChannelDenied: it may not follow any of them.
            InvalidName: no channel can have such a name.
        """
        visitor = listener.visitor
        places: Places = {channel_name(name, visitor.site_id): wish for name, wish in wishes.channels.items()}
        denied = await self._denied(visitor, places)
        if denied:
            places = {channel: wish for channel, wish in places.items() if channel.name not in denied}
            if not places:
                raise ChannelDenied(denied)
        if wishes.epoch is not None:
            listener.epoch = await self._bus.feeds.backlogs.of(None).epoch()
            listener.has_been_here = wishes.epoch == listener.epoch
        if wishes.epoch and wishes.epoch != listener.epoch:
            places = {channel: wish if wish is None else min(wish, 0) for channel, wish in places.items()}
        if is_live:
            await listener.enter(places)
        findings = await listener.catch_up(places)
        if denied:
            findings.tell(DENIED, denied)
        if listener.epoch != wishes.epoch:
            findings.tell(EPOCH, listener.epoch)
        return findings

    async def _denied(self, visitor: Visitor, places: Places) -> list[str]:
        if self.settings.may_subscribe is None:
            return []
        names = [channel.name for channel in places]
        allowed = await asyncio.gather(*(outcome(self.settings.may_subscribe(visitor, name)) for name in names))
        return [name for name, may in zip(names, allowed, strict=True) if not may]

    def _note_lag(self, published_ms: int) -> None:
        self.traffic.lag_seconds = max(self._bus.link.clock() - published_ms, 0) / 1000

    # Who is held

    @asynccontextmanager
    async def hold(self, listener: Listener, transport: str) -> AsyncIterator[None]:
        """Count a client while it is held, and tell those who want to know of it.

        Raises:
            NotAttached: the feeds are switched off.
            TooManyClients: there are as many as there may be.
        """
        if not self.is_on:
            raise NotAttached("The feeds are switched off at the moment.")
        settings = self.settings
        with self.held.hold(listener, transport):
            if settings.on_connect is not None:
                await outcome(settings.on_connect(listener.visitor))
            try:
                yield
            finally:
                listener.close()
                if settings.on_disconnect is not None:
                    await outcome(settings.on_disconnect(listener.visitor))


async def outcome(result: Awaitable[T] | T) -> T:
    """Return what a plain or an async function returned."""
    return await result if inspect.isawaitable(result) else result
