"""One client that is being served: what it follows, how far it has got, and what waits for it.

It enters the rooms of its channels first and reads their backlogs then, and takes nothing of which the id is not the
next one: so nothing falls between the two, and nothing comes twice.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from onebus.errors import StoreUnavailable
from onebus.objects.feeds.backlog import Backlogs
from onebus.objects.feeds.names import ChannelName
from onebus.web.feeds.delivery import Delivery
from onebus.web.feeds.express import Express
from onebus.web.feeds.findings import GAP, Findings
from onebus.web.feeds.parcels import Parcel, parcel_of
from onebus.web.feeds.rooms import Rooms
from onebus.web.feeds.visitor import Visitor

MAX_BYTES_AT_ONCE: Final = 1024 * 1024
MIN_BYTES_OF_CHANNEL: Final = 16 * 1024
"""What a client is sent at once of its backlogs, all together, and at least of each."""
MAX_WAITING_BYTES: Final = 1024 * 1024
MAX_WAITING_DELIVERIES: Final = 1000
"""What waits for a client that is slow; more than that it is read from the backlog when the client is ready."""
RETRY_SECONDS: Final = 0.5


class _Caught(Struct, frozen=True):
    """What the backlog of one channel had for a client."""

    position: int
    parcel: Parcel | None = None
    has_status: bool = False
    gap: tuple[int, int] | None = None
    is_whole: bool = True


class Listener:
    """A client, from its request to the end of the answer."""

    def __init__(self, visitor: Visitor, backlogs: Backlogs, rooms: Rooms) -> None:
        self.visitor = visitor
        self.epoch: str | None = None
        """Which life of all feeds it follows; None for a client that does not want to hear of lives and gaps."""
        self.has_been_here = False
        """Whether it knew that life when it came: then 0 is where it stood, and not a wish for whatever there is."""
        self.is_over = False
        """Whether nothing more is to be sent but the end."""
        self._backlogs = backlogs
        self._rooms = rooms
        self.positions: dict[ChannelName, int] = {}
        """The newest message of each channel that was sent, or may not be seen."""
        self._entered: dict[ChannelName, None] = {}
        self._arrived: list[tuple[ChannelName, Delivery]] = []
        self.waiting_bytes = 0
        """What has arrived and was not sent yet."""
        self._is_behind = False
        self._is_called = False
        self._loop = asyncio.get_running_loop()
        self._bell: asyncio.Future[None] | None = None
        self.express: Express | None = None
        """A way to the client that needs no task, while it waits for nothing but messages."""

    # Following

    async def enter(self, channels: Iterable[ChannelName]) -> None:
        """Have what is published from now on delivered."""
        new = [channel for channel in channels if channel not in self._entered]
        self._entered.update(dict.fromkeys(new))
        await self._rooms.enter(new, self)

    async def catch_up(self, wishes: Mapping[ChannelName, int | None]) -> Findings:
        """Go to where a client wants to begin in some channels, and return what it finds there."""
        share = max(MAX_BYTES_AT_ONCE // max(len(wishes), 1), MIN_BYTES_OF_CHANNEL)
        if len(wishes) == 1:
            caught = [await self._catch_up(*wish, share) for wish in wishes.items()]
        else:
            caught = await asyncio.gather(*(self._catch_up(*wish, share) for wish in wishes.items()))
        findings, gaps = Findings(), {}
        for channel, found in zip(wishes, caught, strict=True):
            self.positions[channel] = found.position
            self._is_behind = self._is_behind or not found.is_whole
            if found.parcel is not None:
                findings.parcels.append(found.parcel)
            if found.has_status:
                findings.status[channel.name] = found.position
            if found.gap is not None:
                gaps[channel.name] = found.gap
        if self.epoch is not None and gaps:
            findings.tell(GAP, gaps)
        return findings

    def leave(self, channels: Iterable[ChannelName]) -> None:
        """Follow some channels no more."""
        left = [channel for channel in channels if channel in self._entered]
        self._rooms.leave(left, self)
        for channel in left:
            del self._entered[channel]
            self.positions.pop(channel, None)

    def close(self) -> None:
        """Follow nothing any more."""
        self.is_over = True
        self._rooms.leave(self._entered, self)
        self._entered.clear()
        self._arrived.clear()

    # What the rooms bring

    def deliver(self, channel: ChannelName, delivery: Delivery) -> None:
        if self.express is not None and self._is_waiting and self.express.is_free:
            findings = self._findings(channel, delivery)
            if findings is not None:
                self.express.send(findings)
            if self._is_behind:
                self._ring()
            return
        self.waiting_bytes += delivery.size
        if self.waiting_bytes > MAX_WAITING_BYTES or len(self._arrived) >= MAX_WAITING_DELIVERIES:
            self.fell_behind()
        else:
            self._arrived.append((channel, delivery))
            self._ring()

    def fell_behind(self) -> None:
        self._arrived.clear()
        self.waiting_bytes = 0
        self._is_behind = True
        self._ring()

    def end(self) -> None:
        """Send nothing more but the end."""
        self.is_over = True
        self._ring()

    def call(self) -> None:
        """Let whoever awaits `next`, or is about to, look around."""
        self._is_called = True
        self._ring()

    @property
    def _is_waiting(self) -> bool:
        return self._bell is not None and not self._bell.done()

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    # What is sent

    async def next(self, patience: float | None = None) -> Findings:
        """Return what has arrived; wait until something has, somebody calls this listener, or its patience ends."""
        while not self.is_over and not self._is_called:
            if self._is_behind:
                return await self._read_what_was_missed()
            if self._arrived:
                findings = self._take_arrived()
                if findings:
                    return findings
                continue
            bell = self._bell = self._loop.create_future()
            timer = None if patience is None else self._loop.call_later(patience, self._ring)
            try:
                await bell
            finally:
                if timer is not None:
                    timer.cancel()
            if not self._arrived and not self._is_behind:
                break
        self._is_called = False
        return Findings()

    async def _read_what_was_missed(self) -> Findings:
        self._is_behind = False
        try:
            return await self.catch_up(dict(self.positions))
        except StoreUnavailable:
            # The client is better off waiting here than coming back only to hear the same.
            self._is_behind = True
            await asyncio.sleep(RETRY_SECONDS)
            return Findings()

    def _take_arrived(self) -> Findings | None:
        arrived, self._arrived, self.waiting_bytes = self._arrived, [], 0
        if len(arrived) == 1:
            return self._findings(*arrived[0])
        found = [one for delivered in arrived if (one := self._findings(*delivered))]
        return Findings([parcel for one in found for parcel in one.parcels])

    def _findings(self, channel: ChannelName, delivery: Delivery) -> Findings | None:
        """Return what is new for this client, if it is what comes next."""
        position = self.positions.get(channel)
        if position is None or delivery.last_id <= position:
            return None
        if delivery.first_id > position + 1:
            self._is_behind = True
            return None
        self.positions[channel] = delivery.last_id
        return delivery.findings(self.visitor, position)

    async def _catch_up(self, channel: ChannelName, wish: int | None, max_bytes: int) -> _Caught:
        room = self._rooms.of(channel) if channel in self._entered else None
        if room is not None and wish is not None and room.has_seen(channel, wish):
            return _Caught(wish)
        backlog = self._backlogs.of(channel)
        looks_back = wish is None or wish < 0
        if wish is None or wish < 0:
            newest = await backlog.last_id()
            if room is not None:
                room.note(channel, newest)
            if wish is None or wish == -1:
                return _Caught(newest, has_status=wish is not None)
            wish = max(newest + wish + 1, 0)
        page = await backlog.page(wish, max_bytes=max_bytes)
        if room is not None:
            room.note(channel, page.last_id)
        if wish > page.last_id:
            return _Caught(page.last_id, has_status=True)
        first = page.messages[0].message_id if page.messages else page.reached + 1
        is_missing = first > wish + 1 and not looks_back and (wish > 0 or self.has_been_here)
        seen = [message for message in page.messages if self.visitor.sees(message)]
        knows_not_where = looks_back and not seen and self.epoch is not None
        return _Caught(
            page.reached,
            parcel_of(seen) if seen else None,
            has_status=len(seen) < len(page.messages) or knows_not_where,
            gap=(wish + 1, first - 1) if is_missing else None,
            is_whole=page.is_whole,
        )
