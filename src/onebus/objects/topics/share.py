"""The share of one member in one topic: which partitions it has, and how they come and go."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from onebus.errors import BusError, InvalidArgument, TopicMissing, VersionConflict
from onebus.events import Events
from onebus.log.groups import assign
from onebus.objects.ear import Ear
from onebus.objects.link import Link
from onebus.objects.topics.batch import TopicBatch
from onebus.objects.topics.cursors import Cursor, Cursors
from onebus.objects.topics.description import Descriptions
from onebus.objects.topics.membership import Membership
from onebus.objects.topics.names import GroupName, log_of, place_of_topic
from onebus.objects.topics.reading import PartitionReading
from onebus.stores.following import RETRY_SECONDS

SIGN_OF_LEASE: Final = 2 / 3
"""For how much of a lease a sign of life counts; together with the time between two looks that is less than a lease."""
RENEWALS_PER_LEASE: Final = 6
"""How often a member shows that it is alive while one lease lasts."""
LOOKS_PER_LEASE: Final = 4
"""How often a member looks around while one lease lasts."""


class Share:
    """Takes the partitions that are one member's fair share, and gives back those that are somebody else's."""

    def __init__(
        self,
        link: Link,
        group: GroupName,
        *,
        events: Events,
        offer: Callable[[TopicBatch], None],
        lease_seconds: float,
        max_messages: int,
        begins_at_end: bool,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.topic = group.topic
        self._link = link
        self._group = group
        self._events = events
        self._offer = offer
        self._lease_seconds = lease_seconds
        self._max_messages = max_messages
        self._begins_at_end = begins_at_end
        self._skipped = 0
        """In how many partitions the group skips what was there when it began; those that were added it reads whole."""
        self._tell_failed = failed
        self._membership = Membership(link.store, group, lease_seconds * SIGN_OF_LEASE)
        self._cursors = Cursors(link.store, group)
        self.total = 0
        """How many partitions the topic has, as far as this member knows; 0 if there is none."""
        self._owned: dict[int, PartitionReading] = {}
        self._releasing: dict[int, asyncio.Task[None]] = {}
        self._ears = [Ear(signal, self._hear, events) for signal in (group.place, place_of_topic(group.topic))]
        self._bell = asyncio.Event()
        self._working: list[asyncio.Task[None]] = []

    @property
    def partitions(self) -> list[int]:
        """What this member has at the moment."""
        return sorted(number for number in self._owned if number not in self._releasing)

    # Life

    async def join(self) -> None:
        """Become a member; partitions follow."""
        for ear in self._ears:
            await ear.open(self._link.store)
        if self._begins_at_end:
            self._skipped = await self._membership.begin(await self._count())
        await self._membership.join()
        await self._announce()
        self._working = [self._run(self._stay_alive(), "lives in"), self._run(self._look_around(), "share")]

    async def leave(self) -> None:
        """Commit what is done, and leave all partitions to the others."""
        working, self._working = self._working, []
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for ear in self._ears:
            await ear.close()
        for releasing in list(self._releasing.values()):
            releasing.cancel()
        await asyncio.gather(*(reading.release(0) for reading in self._owned.values()))
        revoked = sorted(self._owned)
        self._owned.clear()
        if revoked:
            await self._events.emit("revoked", self.topic, revoked)
        try:
            await self._membership.leave()
            await self._announce()
        except BusError as error:
            if not error.retryable:
                raise
            self._link.log.debug("the group %s will notice later that a member left: %s", self._group.place, error)

    async def _count(self) -> int:
        try:
            return (await Descriptions(self._link.store).get(self.topic)).partitions
        except TopicMissing:
            return 0

    async def _announce(self) -> None:
        await self._link.store.signal(self._group.place, b"changed")

    async def _hear(self, _: bytes) -> None:
        self._bell.set()

    def _run(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = self._link.run(work, self._events, f"onebus-{what} {self._group.place}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell_failed(error)

    async def _stay_alive(self) -> None:
        """Show that this member is alive, however long others take to do what they are told."""
        while True:
            await asyncio.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
            await self._patiently(self._membership.renew)

    async def _look_around(self) -> None:
        """Look whether the share of this member is fair, from time to time and when told to."""
        while True:
            self._bell.clear()
            await self._patiently(self._balance)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease_seconds / LOOKS_PER_LEASE):
                    await self._bell.wait()

    async def _patiently(self, action: Callable[[], Awaitable[None]]) -> None:
        """Do something, again and again while the store is away or refuses."""
        while True:
            try:
                return await action()
            except BusError as error:
                if not error.retryable:
                    raise
                self._link.log.debug("%s has to wait: %s", self._group.place, error)
            await asyncio.sleep(RETRY_SECONDS)

    # Balancing

    async def _balance(self) -> None:
        try:
            description = await Descriptions(self._link.store).get(self.topic)
        except TopicMissing:
            return
        self.total = description.partitions
        numbers = range(self.total)
        # First the owners, then who is alive: whoever has joined and taken a partition in between would else be taken
        # for dead. Whoever has left in between has changed what is written here, and it can't be taken.
        cursors = dict(zip(numbers, await asyncio.gather(*map(self._cursors.get, numbers)), strict=True))
        living = await self._membership.living()
        for number, reading in list(self._owned.items()):
            if number in cursors:
                reading.look(cursors[number])
            else:
                # The topic was deleted, and made again with fewer of them.
                reading.lose()
        owners = {number: cursor.owner for number, cursor in cursors.items() if cursor.owner in living}
        mine = {number for number, member in assign(numbers, living, owners).items() if member == self._membership.id}
        for number in set(self._owned) - mine:
            self._release(number)
        # What bears this member's name and is not in its hands: the store was away while it was taken or given back.
        strays = {number for number, owner in owners.items() if owner == self._membership.id} - set(self._owned)
        await self._return(strays - mine, cursors)
        free = [number for number in sorted(mine - set(self._owned)) if number in strays or number not in owners]
        await self._take(free, cursors)

    async def _return(self, strays: Collection[int], cursors: Mapping[int, Cursor]) -> None:
        for number in strays:
            await self._cursors.release(number, cursors[number])
        if strays:
            await self._announce()

    async def _take(self, free: Sequence[int], cursors: Mapping[int, Cursor]) -> None:
        """Become the owner of partitions; nobody sees some of them before all are here."""
        readings = await asyncio.gather(*(self._reading(number, cursors[number]) for number in free))
        taken = {reading.number: reading for reading in readings if reading is not None}
        if len(taken) < len(free):
            self._bell.set()
        if taken:
            self._owned.update(taken)
            for reading in taken.values():
                reading.start()
            await self._events.emit("assigned", self.topic, list(taken))
            await self._events.emit("rebalance", self.topic, self.partitions)

    async def _reading(self, number: int, old: Cursor) -> PartitionReading | None:
        """Return a partition that is this member's from now on; None if somebody else was faster."""
        stat = await self._link.store.stat(log_of(self.topic, number))
        position, epoch = old.position, stat.epoch if stat is not None else ""
        if position is None:
            is_skipped = number < self._skipped
            position = 0 if stat is None else stat.last_id if is_skipped else stat.first_id - 1
        elif old.epoch and old.epoch != epoch:
            # The partition was deleted, and made again.
            position = 0 if stat is None else stat.first_id - 1
        try:
            cursor = await self._cursors.take(number, old, self._membership.id, position, epoch)
        except VersionConflict:
            return None
        return PartitionReading(
            self._link,
            self.topic,
            number,
            self._cursors,
            cursor,
            events=self._events,
            offer=self._offer,
            max_messages=self._max_messages,
            lost=self._lost,
            failed=self._tell_failed,
        )

    def _release(self, number: int) -> None:
        """Begin to give back a partition, which takes until what is being worked on is done."""
        if number not in self._releasing:
            releasing = self._give_back(number, self._owned[number])
            self._releasing[number] = self._link.run(releasing, self._events, f"onebus-releases {self.topic}:{number}")

    async def _give_back(self, number: int, reading: PartitionReading) -> None:
        try:
            await reading.release(self._lease_seconds)
        finally:
            self._owned.pop(number, None)
            self._releasing.pop(number, None)
        await self._tell_revoked(number)
        await self._announce()

    async def _tell_revoked(self, number: int) -> None:
        await self._events.emit("revoked", self.topic, [number])
        await self._events.emit("rebalance", self.topic, self.partitions)

    def _lost(self, reading: PartitionReading) -> None:
        if self._owned.get(reading.number) is reading and reading.number not in self._releasing:
            del self._owned[reading.number]
            self._link.run(self._tell_revoked(reading.number), self._events, f"onebus-lost {self.topic}")
            self._bell.set()


def begins_at_end(start: str) -> bool:
    """Return whether a group that is new begins at the end of a topic.

    Raises:
        InvalidArgument: it can begin at the ``"beginning"`` or at the ``"end"`` only.
    """
    if start not in ("beginning", "end"):
        raise InvalidArgument(f"start is 'beginning' or 'end', and not {start!r}.")
    return start == "end"
