"""A queue of messages, in the order in which they were pushed.

queue:NAME              its messages
queue:NAME|later        messages that wait for their time
queue:NAME|dead         messages that could not be handled
queue:NAME|metadata     what its users note on it (a record)
queue:NAME|once:ID      pushes that must happen once (records)
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from enum import Enum
from math import inf
from typing import Any, Final, Self, TypeVar

from msgspec import structs

from onebus.errors import (
    AlreadyAttached,
    AlreadyConsuming,
    BusError,
    InvalidArgument,
    LeaseLost,
    NotAttached,
    Overloaded,
    StoreUnavailable,
)
from onebus.events import Emitter
from onebus.log.batch import Entry, Kind, count_of
from onebus.log.names import check_name
from onebus.log.writer import LogWriter
from onebus.message import Message
from onebus.objects.consumer import Consumer
from onebus.objects.deadletters import DeadLetters
from onebus.objects.delays import DUE_HEADER, Delays
from onebus.objects.early import EarlyPush, NamedPush
from onebus.objects.link import Link
from onebus.objects.metadata import Metadata
from onebus.objects.once import Once
from onebus.objects.options import ConsumeOptions
from onebus.objects.places import place_of_object
from onebus.objects.unfinished import Unfinished
from onebus.objects.unpacking import unread_messages
from onebus.payload import Data, pack
from onebus.stores.base import Store

DEFAULT_TTL_SECONDS: Final = 30.0
MAX_EARLY_PUSHES: Final = 10_000
ONCE_SECONDS: Final = 300.0
"""How long a message id keeps a push from being repeated, unless it says otherwise."""

RESERVED_HEADERS: Final = "onebus-"

_MISSING: Final = object()

AnyConsumer = TypeVar("AnyConsumer", bound=Consumer)


class State(Enum):
    DETACHED = "detached"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"


class Queue(Emitter):
    """A queue of the bus. Create it with `Bus.queue`.

    It lives as long as somebody is attached to it, and ``ttl`` seconds longer. Any number of clients may push to it
    and consume from it; each message goes to one consumer, in the order of pushing.

    Events: ``attaching``, ``attached`` (existed), ``detaching``, ``detached``, ``consuming`` (started or stopped),
    ``message`` (message), ``closed``, ``error`` (error).
    """

    def __init__(
        self, link: Link, name: str, *, ttl: float = DEFAULT_TTL_SECONDS, max_size: int | None = None, log: str = ""
    ) -> None:
        super().__init__()
        self.name = name
        self.max_size = max_size
        self._link = link
        self._log = log or place_of_object("queue", name)
        self._own_ttl = self._ttl = _checked_ttl(ttl)
        if max_size is not None and max_size < 1:
            raise InvalidArgument(f"max_size must be at least 1, but is {max_size}.")
        self._state = State.DETACHED
        self._attached = asyncio.Event()
        self._writer = LogWriter(self._append, clock=link.clock, limits=link.limits, unheard=self._push_failed)
        self._early: deque[EarlyPush] = deque()
        self._named: set[asyncio.Task[int]] = set()
        self._consumer: Consumer | None = None
        self._alive: asyncio.Task[None] | None = None
        self._beat = asyncio.Event()
        self._leaver: asyncio.Task[Any] | None = None
        self._has_left = asyncio.Event()
        self._later_log = f"{self._log}|later"
        self._dead_log = f"{self._log}|dead"
        self._metadata = Metadata(link, f"{self._log}|metadata")
        self._delays = Delays(link, self._later_log, self._log, self.events)
        self._dead_letters = DeadLetters(link, self._dead_log, self._log, self._create)
        self._epoch = ""
        self._pushed = 0
        self._consumed = 0

    # Life

    async def __aenter__(self) -> Self:
        await self.attach()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.detach()

    @property
    def is_attached(self) -> bool:
        return self._attached.is_set()

    async def attach(self, ttl: float | None = None) -> bool:
        """Attach to the queue, and create it if there is none; return whether it existed.

        A queue that exists keeps the ttl it was created with. What was pushed before is pushed now.

        Raises:
            AlreadyAttached: this object is attached already.
        """
        if self._state is not State.DETACHED:
            raise AlreadyAttached(f"cannot attach to queue {self.name!r}: already attached")
        if ttl is not None:
            self._own_ttl = _checked_ttl(ttl)
        store = self._link.store
        self._ttl = self._own_ttl
        self._state = State.ATTACHING
        await self.events.emit("attaching")
        try:
            await self._link.watch_closing(self._log, self)
            existed = await self._create()
            stat = await store.stat(self._log)
            if stat is not None:
                self._ttl, self._epoch = stat.ttl_seconds, stat.epoch
            await self._touch()
            await self._push_early()
        except BaseException:
            self._state = State.DETACHED
            self._link.unwatch_closing(self._log, self)
            raise
        self._state = State.ATTACHED
        self._link.enter(self)
        store.health.on_change(self._health_changed)
        self._alive = self._link.run(self._stay_alive(), self.events, f"onebus-alive {self._log}")
        self._attached.set()
        await self.events.emit("attached", existed)
        return existed

    async def detach(self) -> None:
        """Stop consuming, wait for what was pushed, and leave the queue; it lives on for its ttl.

        Detaching twice does nothing.
        """
        if self._state is State.DETACHING and self._leaver is not asyncio.current_task():
            await self._has_left.wait()
        if self._state is not State.ATTACHED:
            return
        async with self._leaving():
            await self.events.emit("detaching")
            await self.stop()
            await asyncio.gather(*self._named, return_exceptions=True)
            await self._writer.flush()
            try:
                if await self._link.store.touch(self._log):
                    await self._metadata.touch(self._ttl)
            except BusError as error:
                await self.events.emit("error", error)
        await self.events.emit("detached")

    async def close(self) -> None:
        """End the queue for everybody, with all its messages. Every attached client gets a ``closed`` event.

        Raises:
            NotAttached: this object is not attached.
        """
        if self._state is not State.ATTACHED:
            raise NotAttached(f"error closing queue {self.name!r}: not attached")
        await self.detach()
        store = self._link.store
        for log in (self._log, self._later_log, self._dead_log):
            await store.drop(log)
        await self._metadata.drop()
        await self._link.tell_closed(self._log)
        await self.events.emit("closed")

    async def was_closed(self) -> None:
        """Leave a queue that somebody has closed."""
        if self._state is State.ATTACHED:
            async with self._leaving():
                await self.stop()
            await self.events.emit("closed")

    @asynccontextmanager
    async def _leaving(self) -> AsyncIterator[None]:
        self._state = State.DETACHING
        self._attached.clear()
        self._has_left.clear()
        self._leaver = asyncio.current_task()
        try:
            yield
        finally:
            if self._alive is not None:
                self._alive.cancel()
                await asyncio.gather(self._alive, return_exceptions=True)
            self._link.unwatch_closing(self._log, self)
            self._link.store.health.off_change(self._health_changed)
            self._link.leave(self)
            self._state = State.DETACHED
            self._has_left.set()

    async def _stay_alive(self) -> None:
        """Touch the queue before its ttl runs out, and right after its store was away: it may have forgotten all."""
        while True:
            try:
                async with asyncio.timeout(self._ttl / 3 or None):
                    await self._beat.wait()
            except TimeoutError:
                pass
            self._beat.clear()
            try:
                await self._touch()
            except StoreUnavailable:
                continue
            except BusError as error:
                await self.events.emit("error", error)

    async def _create(self) -> bool:
        """Create the queue if there is none, and return whether there was one."""
        return await self._link.store.touch(self._log, ttl_seconds=self._ttl, create=True)

    async def _touch(self) -> None:
        """Start the ttl of the queue anew. A queue that its store has forgotten is created again."""
        store = self._link.store
        if not await store.touch(self._log):
            await self._create()
        await self._metadata.touch(self._ttl)

    def _health_changed(self, online: bool) -> None:
        if online:
            self._beat.set()

    # Pushing

    def push(
        self,
        data: Data,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        at: float | None = None,
        message_id: str | None = None,
        once_for: float = ONCE_SECONDS,
    ) -> Awaitable[int]:
        """Push a message, and return an awaitable that gives its id once it is stored.

        It is on its way even if nobody awaits; then a failure is an ``error`` event. Where more waits than may wait,
        the push itself has to be awaited. What is pushed before the queue is attached is pushed when it is.

        ``delay`` and ``at`` (seconds since 1970) let it wait for its time in the store; its id is then that of its
        place among the delayed ones. ``message_id`` names the push: within ``once_for`` seconds another one with the
        same name stores nothing and gets the same id.

        Raises:
            NotSerializable, PayloadTooLarge: the message cannot be stored.
            LogFull: when awaited: the queue has ``max_size`` messages.
        """
        value, kind = pack(data)
        # The common case goes straight to the writer: this is the hottest path of the bus.
        if (
            key is None
            and headers is None
            and not delay
            and at is None
            and message_id is None
            and self._attached.is_set()
        ):
            try:
                return self._writer.post_value(self._log, value, kind)
            except Overloaded:
                return self._writer.append_value(self._log, value, kind)
        entry = _entry(value, kind, key, headers)
        due_ms = self._due_ms(delay, at)
        if message_id is not None:
            return self._push_named(entry, due_ms, message_id, once_for)
        return self.push_entry(entry, due_ms)

    async def push_many(self, messages: Sequence[Data]) -> list[int]:
        """Push messages, and return their ids once all are stored.

        Cancellation: messages that are not on their way yet are not stored.
        """
        entries = [Entry(*pack(data)) for data in messages]
        if not self.is_attached:
            for entry in entries:
                self._writer.check(entry)
            await self._attached.wait()
        return await self._writer.append_many(self._log, entries)

    @property
    def pushed(self) -> int:
        """How many messages this object has pushed."""
        return self._pushed

    def _due_ms(self, delay: float, at: float | None) -> int | None:
        if delay < 0 or (delay and at is not None):
            raise InvalidArgument("Give either a delay of 0 seconds or more, or the time with at=….")
        if at is not None:
            return round(at * 1000)
        return self._link.clock() + round(delay * 1000) if delay else None

    def push_entry(self, entry: Entry, due_ms: int | None = None) -> Awaitable[int]:
        """Push a message as the log keeps it; for the objects that are built on queues."""
        log, entry = self._addressed(entry, due_ms)
        if not self.is_attached:
            return self._remember(entry, lambda: self._writer.post(log, entry))
        try:
            return self._writer.post(log, entry)
        except Overloaded:
            return self._writer.append(log, entry)

    def _addressed(self, entry: Entry, due_ms: int | None) -> tuple[str, Entry]:
        if due_ms is None:
            return self._log, entry
        self._delays.expect(due_ms)
        headers = {**(entry.headers or {}), DUE_HEADER: str(due_ms)}
        return self._later_log, structs.replace(entry, headers=headers)

    def _push_named(self, entry: Entry, due_ms: int | None, message_id: str, once_for: float) -> Awaitable[int]:
        record = check_name(f"{self._log}|once:{message_id}")
        if not once_for > 0:
            raise InvalidArgument(f"once_for must be greater than 0 seconds, but is {once_for}.")
        log, entry = self._addressed(entry, due_ms)
        self._writer.check(entry)

        def push() -> NamedPush:
            once = Once(self._link.store, record, once_for)
            task = asyncio.create_task(once.run(lambda: self._writer.append(log, entry)), name=f"onebus-once {record}")
            self._named.add(task)
            task.add_done_callback(self._named.discard)
            return NamedPush(task, lambda error: self._push_failed(log, error))

        return push() if self.is_attached else self._remember(entry, push)

    # Pushing before the queue is attached

    def _remember(self, entry: Entry, push: Callable[[], Awaitable[int]]) -> EarlyPush:
        self._writer.check(entry)
        if len(self._early) >= MAX_EARLY_PUSHES:
            raise Overloaded(f"{MAX_EARLY_PUSHES} messages wait for queue {self.name!r} to be attached. Attach it.")
        early = EarlyPush(push)
        self._early.append(early)
        self._link.on_disconnect(self._forget_early)
        return early

    async def _push_early(self) -> None:
        while self._early:
            await self._writer.room()
            early = self._early.popleft()
            if not early.is_given_up:
                early.push()

    def _forget_early(self) -> None:
        error = NotAttached(f"The bus was disconnected, and queue {self.name!r} never attached.")
        while self._early:
            early = self._early.popleft()
            if not early.is_given_up and not early.fail(error):
                self._push_failed(self._log, error)

    # Storing

    async def _append(self, log: str, blob: bytes) -> int:
        is_delayed = log == self._later_log
        first_id = await self._link.store.append(log, blob, capacity=None if is_delayed else self.max_size)
        self._pushed += count_of(blob)
        try:
            if is_delayed:
                await self._delays.keep(is_new=first_id == 1)
            elif first_id == 1:
                await self._limit_new_life()
        except StoreUnavailable as error:
            self._link.log.debug("the time to live of %s could not be set: %s", log, error)
        return first_id

    async def _limit_new_life(self) -> None:
        """Give the queue its ttl if a message has created it anew, after somebody closed it: for ever."""
        store = self._link.store
        stat = await store.stat(self._log)
        if stat is not None and stat.epoch != self._epoch:
            self._epoch = stat.epoch
            await store.touch(self._log, ttl_seconds=self._ttl)

    def _push_failed(self, log: str, error: Exception) -> None:
        self._link.tell(self.events, "error", error)

    # Consuming

    def consume(
        self,
        *,
        max: int | None = None,  # noqa: A002
        remove: bool = True,
        index: int = 0,
        reliable: bool = False,
        last: int = 0,
        lease: float | None = None,
        max_attempts: int | None = None,
        prefetch: int | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> AsyncGenerator[Message]:
        """Iterate over messages as they come, until `stop` is called or the loop is left.

        Delivery: at most once by default. With ``reliable=True`` at least once: each message has to be acknowledged,
        by ``message.ack()`` or with all before it by `ack`; what was not comes again, to whoever consumes next, or,
        after a crash, when the lease has ended. ``last`` is the id up to which all was acknowledged in an earlier
        life. With ``lease=seconds`` each message has to be acknowledged within that time. ``max_attempts`` deliveries
        without an acknowledgement put a message into the dead-letter queue. Several consumers of any mode share the
        messages between them: each is with one of them at a time, and `ack` concerns those of this object only.
        With ``remove=False`` nothing is taken away: all messages are read, from the one at ``index`` on, which counts
        from the end if it is negative.

        ``max`` ends the loop after so many messages, ``timeout`` when no message has come for so many seconds,
        ``wait=False`` when no message is waiting. ``prefetch`` sets how many are fetched at once, which otherwise
        adapts to the pace of the loop. Nothing that was fetched and not handed over is lost when the loop ends.
        A queue that is not attached yet is waited for.

        Raises:
            AlreadyConsuming: this object is consuming already.
        """
        options = ConsumeOptions(
            max=max,
            remove=remove,
            index=index,
            reliable=reliable,
            last=last,
            lease=lease,
            max_attempts=max_attempts,
            prefetch=prefetch,
            wait=wait,
            timeout=timeout,
        )
        return self.consumer(Consumer, options).messages()

    def consumer(self, kind: type[AnyConsumer], options: ConsumeOptions) -> AnyConsumer:
        """Return a consumer that has not begun; for what is built on queues."""
        return kind(self, self._log, options, owner=self._link.client)

    async def start(self, **options: Any) -> None:
        """Consume in the background, with a ``message`` event for each message; takes the options of `consume`.

        Before the queue is attached this is remembered, and done when it is.
        """
        if self._consumer is not None:
            raise self._consuming_already()
        messages = self.consume(**options)
        self._link.run(self._emit_messages(messages), self.events, f"onebus-consume {self._log}")
        # The consumer introduces itself when it runs for the first time.
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Stop consuming: no message is handed over any more, and those that were fetched go back to the queue."""
        if self._consumer is not None:
            await self._consumer.stop()

    async def ack(self, message_id: int) -> None:
        """Acknowledge a message, and every one before it, that a reliable consumer of this object was handed.

        Returns once they are settled in the store. Ignored when not consuming in a mode that needs it.
        """
        if self._consumer is not None and self._consumer.options.needs_ack:
            await self._consumer.ack_until(message_id)

    def put_back(self, message: Message) -> None:
        """Let the message that the loop over `consume` was handed last count as not handed over.

        It goes back when the loop is left now, in every mode, and this delivery is not counted as an attempt.
        """
        if self._consumer is not None:
            self._consumer.put_back(message.id)

    @property
    def is_consuming(self) -> bool:
        return self._consumer is not None

    @property
    def consumed(self) -> int:
        """How many messages this object has consumed."""
        return self._consumed + (self._consumer.handed if self._consumer is not None else 0)

    async def _emit_messages(self, messages: AsyncGenerator[Message]) -> None:
        async with aclosing(messages):
            async for message in messages:
                await self.events.emit("message", message)

    def _consuming_already(self) -> AlreadyConsuming:
        return AlreadyConsuming(f"This object of queue {self.name!r} is consuming already; stop it, or use another.")

    # What a consumer asks for

    @property
    def store(self) -> Store:
        return self._link.store

    async def begin(self, consumer: Consumer) -> None:
        if self._consumer is not None and self._consumer.stopping.is_set():
            await self._consumer.stop()
        if self._consumer is not None:
            raise self._consuming_already()
        self._consumer = consumer
        if not self.is_attached:
            waiting = [asyncio.create_task(event.wait()) for event in (self._attached, consumer.stopping)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        if consumer.stopping.is_set():
            return
        consumer.has_begun = True
        if consumer.options.remove:
            if not consumer.options.wait:
                # Another consumer may be faster with some of them.
                with suppress(LeaseLost):
                    await self._delays.move()
            self._delays.start()
        await self.events.emit("consuming", True)

    async def ended(self, consumer: Consumer) -> None:
        if self._consumer is consumer:
            self._consumed += consumer.handed
            self._consumer = None
            if consumer.has_begun:
                await self._delays.stop()
                await self.events.emit("consuming", False)

    async def report(self, error: Exception) -> None:
        await self.events.emit("error", error)

    async def bury(self, messages: Sequence[Message], reason: str) -> None:
        await self._dead_letters.add(messages, reason)

    # Dead letters

    @property
    def dead(self) -> DeadLetters:
        """The messages of this queue that could not be handled."""
        return self._dead_letters

    async def redrive(self, max: int | None = None) -> int:  # noqa: A002
        """Push dead letters once more, oldest first, and return how many."""
        return await self._dead_letters.redrive(max)

    # Asking

    async def exists(self) -> bool:
        """Return whether the queue exists, attached or not."""
        return await self._link.store.stat(self._log) is not None

    async def count(self) -> int:
        """Return how many messages wait to be consumed."""
        stat = await self._link.store.stat(self._log)
        return stat.claimable if stat is not None else 0

    async def peek(self, limit: int = 10) -> list[Message]:
        """Return the messages that would be consumed next; they stay where they are."""
        store = self._link.store
        waiting = await Unfinished.of(store, self._log, claimable_only=True)
        found: list[Message] = []
        after = waiting.position(0)
        while len(found) < limit and after < waiting.last_id:
            messages = list(unread_messages(await store.read(self._log, after=after, limit=limit), after))
            if not messages:
                break
            found += [message for message in messages if message.id in waiting]
            after = messages[-1].id
        return found[:limit]

    async def ttl(self) -> float | None:
        """Return for how many seconds the queue lives without anybody attached, or None if it does not exist."""
        stat = await self._link.store.stat(self._log)
        return stat.ttl_seconds if stat is not None else None

    async def flush(self) -> None:
        """Remove all messages, delayed ones included."""
        await self._writer.flush()
        for log in (self._log, self._later_log):
            await self._link.store.clear(log)

    # Metadata

    async def metadata(self, key: str | Mapping[str, Data] | None = None, value: Data = _MISSING) -> Data:
        """Note something on the queue, or read what was noted.

        ``metadata(key, value)`` and ``metadata({key: value, …})`` set; ``metadata(key)`` returns one value, or None;
        ``metadata()`` returns all. What is noted lives as long as the queue.
        """
        if isinstance(key, str) and value is not _MISSING:
            key = {key: value}
        if isinstance(key, Mapping):
            ttl = self._ttl if self.is_attached else await self.ttl() or self._own_ttl
            return await self._metadata.note(key, ttl)
        noted = await self._metadata.all()
        return noted if key is None else noted.get(key)


def _entry(value: bytes, kind: Kind, key: str | bytes | None, headers: Mapping[str, str] | None) -> Entry:
    for name in headers or ():
        if name.startswith(RESERVED_HEADERS):
            raise InvalidArgument(f"The header {name!r} is reserved; choose one without {RESERVED_HEADERS!r}.")
    return Entry(value, kind, key.encode() if isinstance(key, str) else key, headers)


def _checked_ttl(ttl: float) -> float:
    if not 0 < ttl < inf:
        raise InvalidArgument(f"ttl must be greater than 0 seconds and come to an end, but is {ttl}.")
    return ttl
