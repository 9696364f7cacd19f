"""What a broker reads from one topic, and sends on to its consumers.

The broker itself is a member of a group in the store, so positions outlive it, and several brokers may share a store.
Consumers that acknowledge have the store's group of the same name. Plain consumers know only rooms, which carry no
group: whoever listens to ``t:3`` gets whatever is sent there, once for all groups. So all plain groups of a topic share
one position, and a room waits until each of them that has members at this moment has a ready one for it.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

import msgspec

from onebus.bus import Bus
from onebus.errors import BusError
from onebus.events import Events
from onebus.objects.topics.batch import TopicBatch
from onebus.objects.topics.names import checked_group
from onebus.objects.topics.share import Share
from onebus.zmq.echoes import Echoes
from onebus.zmq.frames import Header, json_array
from onebus.zmq.outlet import Outlet
from onebus.zmq.team import Member, Team

_log = logging.getLogger("onebus")

LEASE_SECONDS: Final = 3.0
"""For so long a broker that was killed keeps its partitions from the next one."""
MAX_BATCH: Final = 10_000
"""As many as are stored together, so that these stay together."""
FULL_BATCH: Final = 1000
"""A batch of so many is not kept waiting for others."""
LEAVING_SECONDS: Final = 5.0
REOPEN_SECONDS: Final = 0.5
"""So long after a failure the broker tries to read a topic again."""
RETURN_SECONDS: Final = 10.0
"""For so long a broker that starts again waits for the plain groups that its predecessor had."""

_sequences = count(1)


class Offered:
    """A batch that was read, until it is done."""

    __slots__ = ("batch", "client", "is_on_its_way", "sequence")

    def __init__(self, batch: TopicBatch) -> None:
        self.batch = batch
        self.sequence = next(_sequences)
        self.client: str | None = None
        """To whom it was sent last."""
        self.is_on_its_way = False
        """Whether that client gets it, or has got it, as far as anybody knows."""


class Stream:
    """One topic, for one group of consumers that acknowledge, or for all groups that do not."""

    def __init__(
        self,
        bus: Bus,
        outlet: Outlet,
        topic: str,
        group: str,
        *,
        echoes: Echoes,
        begins_at_end: bool,
        tell: Callable[[Team, Member], None],
        gone: Callable[[str], None],
    ) -> None:
        """`tell` is called with members that have to know something new, `gone` with groups that do not come back."""
        self.topic = topic
        self.teams: dict[str, Team] = {}
        self._outlet = outlet
        self._echoes = echoes
        self._tell = tell
        self._tell_gone = gone
        self._offered: dict[int, deque[Offered]] = defaultdict(deque)
        self._is_closed = False
        self._width = 0
        self._partitions = 0
        self._awaited: set[str] = set()
        self._patience_ends = 0.0
        events = Events()
        events.on("rebalance", self._shares_changed)
        events.on("error", self._report)
        self._share = Share(
            bus.link,
            checked_group(topic, group),
            events=events,
            offer=self._offer,
            lease_seconds=LEASE_SECONDS,
            max_messages=MAX_BATCH,
            begins_at_end=begins_at_end,
            failed=self._share_failed,
        )
        self._failure: BaseException | None = None
        self._has_failed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    # Life

    def open(self, partitions: int) -> None:
        """Join the group in the store, as soon as that is possible, and again if anything goes wrong."""
        self._widen(partitions)
        self._reading = asyncio.create_task(self._read(), name=f"onebus-stream {self.topic}")

    async def _read(self) -> None:
        while True:
            try:
                self._has_failed.clear()
                await self._share.join()
                await self._has_failed.wait()
                _log.error("%s could not be read on", self.topic, exc_info=self._failure)
            except BusError as error:
                _log.warning("%s cannot be read: %s", self.topic, error)
            with suppress(BusError):
                await self._share.leave()
            await asyncio.sleep(REOPEN_SECONDS)

    def _share_failed(self, error: BaseException) -> None:
        self._failure = error
        self._has_failed.set()

    def wait_for(self, groups: set[str]) -> None:
        """Send nothing before these groups are there too, or so much time has passed that they will not come."""
        self._awaited = groups
        self._patience_ends = asyncio.get_running_loop().time() + RETURN_SECONDS

    async def close(self) -> None:
        """Leave the group in the store; what is not done is read again by whoever comes next."""
        self._is_closed = True
        for offered in self._offered.values():
            for one in offered:
                one.batch.abandon()
        self._offered.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        try:
            async with asyncio.timeout(LEAVING_SECONDS):
                await self._share.leave()
        except (TimeoutError, BusError):
            _log.warning("could not leave the groups of %s in time; their partitions are free soon", self.topic)

    async def _report(self, error: object) -> None:
        _log.warning("reading %s: %s", self.topic, error)

    def _offer(self, batch: TopicBatch) -> None:
        if not self._is_closed:
            self._offered[batch.partition].append(Offered(batch))
            if len(batch) >= FULL_BATCH:
                self.flush()

    # Members

    def join(self, group: str, client: str, inbox: str | None) -> None:
        team = self.teams.setdefault(group, Team(self.topic, group))
        member = team.join(client, inbox)
        if member.generation:
            # It joined before, and asks again what it has.
            self._tell(team, member)
        self._balance(team)

    def leave(self, client: str) -> list[str]:
        """Take a client out of all groups, and return those that are empty then.

        What it has not acknowledged is sent to others.
        """
        emptied = []
        for group, team in list(self.teams.items()):
            if team.members.pop(client, None) is not None:
                self.send_again(client)
                if team.members:
                    self._balance(team)
                else:
                    del self.teams[group]
                    emptied.append(group)
        return emptied

    def confirm(self, group: str, client: str, generation: object, partitions: list[int]) -> None:
        """Hear that a client has let go of what it lost, and has made ready for what it got."""
        team = self.teams.get(group)
        if team is not None and team.confirm(client, generation, partitions):
            # What reached it between two assignments, it has dropped.
            self.send_again(client)

    def send_again(self, client: str) -> None:
        """Send again what a client has not acknowledged; what it has done by then, it acknowledges again."""
        for offered in self._offered.values():
            for one in offered:
                if one.client == client:
                    one.is_on_its_way = False

    async def _shares_changed(self, *_: object) -> None:
        for team in self.teams.values():
            self._balance(team)

    def _balance(self, team: Team) -> None:
        partitions = self._share.partitions
        if partitions or any(member.generation for member in team.members.values()):
            for member in team.balance(partitions):
                self._tell(team, member)

    def _widen(self, partitions: int) -> None:
        """Hear how many partitions the topic has; if their labels change, everybody has to know."""
        self._partitions = partitions
        width = 0 if partitions <= 10 else len(str(partitions - 1))
        if width != self._width:
            self._width = width
            for team in self.teams.values():
                for member in team.members.values():
                    if member.generation and member.inbox is None:
                        member.give(member.partitions)
                        self._tell(team, member)

    def label(self, number: int) -> int | str:
        """Return what plain consumers call a partition: all of the same length, so that no room begins with another."""
        return f"{number:0{self._width}}" if self._width else number

    # Sending

    def flush(self) -> None:
        """Send what waits, as far as somebody is there to get it."""
        if self._share.total > self._partitions:
            self._widen(self._share.total)
        if not self._awaited <= self.teams.keys() and asyncio.get_running_loop().time() < self._patience_ends:
            return
        for group in self._awaited - self.teams.keys():
            self._tell_gone(group)
        self._awaited = set()
        for number, offered in self._offered.items():
            owners = [team.owner(number) for team in self.teams.values()] if offered else []
            ready = [owner for owner in owners if owner is not None]
            if ready and len(ready) == len(owners):
                self._send(number, offered, ready)

    def _send(self, number: int, offered: deque[Offered], owners: list[Member]) -> None:
        inbox = owners[0].inbox
        if inbox is None:
            room = f"{self.topic}:{self.label(number)}"
            if self._outlet.listeners(room) >= len(owners):
                self._send_to_room(room, offered)
        elif self._outlet.listeners(inbox):
            self._send_to_inbox(inbox, offered, owners[0].client)

    def _send_to_room(self, room: str, offered: deque[Offered]) -> None:
        _forget_lost(offered)
        payload = json_array((one.batch for one in offered), self._echoes)
        if offered and self._outlet.send([room.encode(), payload]):
            for one in offered:
                one.batch.finish()
            offered.clear()

    def _send_to_inbox(self, inbox: str, offered: deque[Offered], client: str) -> None:
        _forget_lost(offered)
        (group,) = self.teams
        previous = 0
        for one in offered:
            # Whoever had the partition before has let go of it, and left undone what is still here.
            if one.client != client or not one.is_on_its_way:
                header = Header(self.topic, group, one.batch.partition, one.sequence, previous)
                if not self._outlet.send(
                    [inbox.encode(), msgspec.json.encode(header), json_array([one.batch], self._echoes)]
                ):
                    return
                one.client, one.is_on_its_way = client, True
            previous = one.sequence

    def acknowledge(self, client: str, partition: int, sequence: int) -> None:
        """Hear that a client has done a batch; it counts only if the batch was sent to that client."""
        offered = self._offered.get(partition, deque())
        for one in offered:
            if one.sequence == sequence and one.client == client:
                offered.remove(one)
                one.batch.finish()
                return


def _forget_lost(offered: deque[Offered]) -> None:
    """Drop what went to another broker meanwhile, or was left behind when somebody moved the group."""
    kept = [one for one in offered if one.batch.deliver()]
    if len(kept) != len(offered):
        offered.clear()
        offered.extend(kept)
