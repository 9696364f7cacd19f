"""What the objects of a bus share: its store while it is connected, and news that concern all of them."""

import asyncio
import logging
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol
from uuid import uuid4

from onebus.errors import NotConnected, UsedAfterFork
from onebus.events import Events
from onebus.log.writer import WriterLimits
from onebus.objects.ear import Ear
from onebus.objects.topics.changes import TopicChanges
from onebus.stores.base import Store

CLOSED_SIGNAL: Final = "closed-queues"
"""The signal that carries the log of a queue that was closed for everybody."""

Clock = Callable[[], int]
"""Returns milliseconds since 1970."""


class Attached(Protocol):
    """An object that uses the store until it is detached."""

    async def detach(self) -> None: ...


class Closable(Attached, Protocol):
    """An attached object that wants to hear when its log is closed for everybody."""

    async def was_closed(self) -> None: ...


class Link:
    """The connection of a bus as its objects see it. It outlives any single connection."""

    def __init__(self, events: Events, *, clock: Clock | None = None, limits: WriterLimits) -> None:
        self.client = uuid4().hex[:16]
        """Tells this bus from all others."""
        self.events = events
        self.log = logging.getLogger("onebus")
        self.clock = clock or _wall_clock_ms
        self.limits = limits
        self._store: Store | None = None
        self.belongs_to_parent = False
        """Whether this process was forked from the one that is connected."""
        self._attached: OrderedDict[object, Attached] = OrderedDict()
        self._closables: dict[str, list[Closable]] = {}
        self._closings = Ear(CLOSED_SIGNAL, self._hear_closing, events)
        self.topic_changes = TopicChanges(events)
        self._to_forget: set[Callable[[], None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def store(self) -> Store:
        """The open store.

        Raises:
            NotConnected: the bus is not connected.
            UsedAfterFork: it was connected before this process was forked.
        """
        if self._store is None:
            self.check_process()
            raise NotConnected("The bus is not connected. Await bus.connect() first, or use it in `async with`.")
        return self._store

    def check_process(self) -> None:
        """Raise `UsedAfterFork` if the connection belongs to the process from which this one was forked."""
        if self.belongs_to_parent:
            raise UsedAfterFork(
                "This bus was connected before the process was forked. Create another one in the new process."
            )

    def check_connected(self) -> None:
        """Raise `NotConnected` if the bus is not connected."""
        _ = self.store

    def connected(self, store: Store) -> None:
        self._store = store
        _connected.add(self)

    def leave_to_parent(self) -> None:
        """Never use the connection again: two processes that talk over it at once would both be misunderstood."""
        self.belongs_to_parent = True
        self._store = None

    async def disconnected(self) -> None:
        """Detach every object, and end what runs for them."""
        while self._attached:
            _, attached = self._attached.popitem(last=False)
            await attached.detach()
        for forget in self._to_forget:
            forget()
        self._to_forget.clear()
        await self._closings.close()
        await self.topic_changes.close()
        # A handler may be what disconnects the bus: it must not wait for itself.
        await asyncio.gather(*_others(self._telling), return_exceptions=True)
        background = _others(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self._store = None
        _connected.discard(self)

    # Who is attached

    def enter(self, attached: Attached, *, first: bool = False) -> None:
        """Remember an object that has to be detached before the store is closed, maybe before those it is built on."""
        self._attached[attached] = attached
        if first:
            self._attached.move_to_end(attached, last=False)

    def leave(self, attached: Attached) -> None:
        self._attached.pop(attached, None)

    async def watch_closing(self, log: str, closable: Closable) -> None:
        """Tell an object when its log is closed for everybody; returns when no such news can be missed."""
        self._closables.setdefault(log, []).append(closable)
        await self._closings.open(self.store)

    def unwatch_closing(self, log: str, closable: Closable) -> None:
        watching = self._closables.get(log, [])
        if closable in watching:
            watching.remove(closable)
        if not watching:
            self._closables.pop(log, None)

    async def tell_closed(self, log: str) -> None:
        """Tell everybody that a log was closed."""
        await self.store.signal(CLOSED_SIGNAL, log.encode())

    async def _hear_closing(self, payload: bytes) -> None:
        for closable in list(self._closables.get(payload.decode(), ())):
            await closable.was_closed()

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        """Call a function, once, when the bus is disconnected."""
        self._to_forget.add(forget)

    # Tasks

    def run(self, work: Coroutine[Any, Any, None], events: Events, name: str) -> asyncio.Task[None]:
        """Run something in the background until the bus disconnects; a failure becomes an ``error`` event."""

        def ended(task: asyncio.Task[None]) -> None:
            self._background.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.tell(events, "error", error)

        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(ended)
        return task

    def tell(self, events: Events, event: str, *values: object) -> None:
        """Emit an event from where nobody can wait for its handlers; the bus does before it disconnects."""
        try:
            task = asyncio.get_running_loop().create_task(events.emit(event, *values), name=f"onebus-{event}")
        except RuntimeError:
            # Whatever is told when an object is deleted may come from any thread, or after the end of the loop.
            self.log.error("%s", values)  # noqa: TRY400
            return
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


_connected: "weakref.WeakSet[Link]" = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for link in tuple(_connected):
        link.leave_to_parent()
    _connected.clear()


os.register_at_fork(after_in_child=_leave_all_to_parent)


def _others(tasks: set[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
    return [task for task in tasks if task is not asyncio.current_task()]


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
