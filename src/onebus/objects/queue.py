"""A queue of messages, in the order in which they were pushed.

queue:NAME              its messages
queue:NAME|later        messages that wait for their time
queue:NAME|dead         messages that could not be handled
queue:NAME|metadata     what its users note on it (a record)
queue:NAME|once:ID      pushes that must happen once (records)
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing, suppress
from enum import Enum
from typing import Any, Final, Self

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
from onebus.log.writer import LogWriter
from onebus.message import Message
from onebus.objects.consumer import ConsumeOptions, Consumer, unread
from onebus.objects.deadletters import DeadLetters
from onebus.objects.delays import DUE_HEADER, Delays
from onebus.objects.link import Link
from onebus.objects.once import Once
from onebus.objects.places import place_of_object
from onebus.objects.unfinished import Unfinished
from onebus.payload import Data, pack, pack_json, unpack
from onebus.stores.base import Store

DEFAULT_TTL_SECONDS: Final = 30.0
MAX_EARLY_PUSHES: Final = 10_000
ONCE_SECONDS: Final = 300.0
"""How long a message id keeps a push from being repeated, unless it says otherwise."""

TTL_FIELD: Final = "ttl"
RESERVED_HEADERS: Final = "onebus-"

_MISSING: Final = object()


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
        self._ttl = _checked_ttl(ttl)
        if max_size is not None and max_size < 1:
            raise InvalidArgument(f"max_size must be at least 1, but is {max_size}.")
        self._state = State.DETACHED
        self._attached = asyncio.Event()
        self._writer = LogWriter(self._append, clock=link.clock, limits=link.limits, unheard=self._push_failed)
        self._early: list[tuple[Entry, str, asyncio.Future[int]]] = []
        self._consumer: Consumer | None = None
        self._alive: asyncio.Task[None] | None = None
        self._beat = asyncio.Event()
        self._later_log = f"{self._log}|later"
        self._dead_log = f"{self._log}|dead"
        self._metadata_record = f"{self._log}|metadata"
        self._delays = Delays(link, self._later_log, self._log, self.events)
        self._dead_letters = DeadLetters(link, self._dead_log, self._log)
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
            self._ttl = _checked_ttl(ttl)
        store = self._link.store
        self._state = State.ATTACHING
        await self.events.emit("attaching")
        try:
            await self._link.watch_closing(self._log, self)
            existed = await store.touch(self._log, ttl_seconds=self._ttl, create=True)
            stat = await store.stat(self._log) if existed else None
            if stat is not None and stat.ttl_seconds:
                self._ttl = stat.ttl_seconds
            await self._touch()
        except BaseException:
            self._state = State.DETACHED
            self._link.unwatch_closing(self._log, self)
            raise
        self._state = State.ATTACHED
        self._link.enter(self)
        store.health.on_change(self._health_changed)
        self._alive = self._link.run(self._stay_alive(), self.events, f"onebus-alive {self._log}")
        self._push_early()
        self._attached.set()
        await self.events.emit("attached", existed)
        return existed

    async def detach(self) -> None:
        """Stop consuming, wait for what was pushed, and leave the queue; it lives on for its ttl.

        Detaching twice does nothing.
        """
        if self._state is not State.ATTACHED:
            return
        self._state = State.DETACHING
        self._attached.clear()
        await self.events.emit("detaching")
        await self.stop()
        await self._writer.flush()
        await self._end_attachment()
        try:
            await self._link.store.touch(self._log)
        except BusError as error:
            await self.events.emit("error", error)
        self._state = State.DETACHED
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
        await store.delete(self._metadata_record)
        await self._link.tell_closed(self._log)
        await self.events.emit("closed")

    async def was_closed(self) -> None:
        """Leave a queue that somebody has closed."""
        if self._state is State.ATTACHED:
            self._state = State.DETACHING
            self._attached.clear()
            await self.stop()
            await self._end_attachment()
            self._state = State.DETACHED
            await self.events.emit("closed")

    async def _end_attachment(self) -> None:
        if self._alive is not None:
            self._alive.cancel()
            await asyncio.gather(self._alive, return_exceptions=True)
        self._link.unwatch_closing(self._log, self)
        self._link.store.health.off_change(self._health_changed)
        self._link.leave(self)

    async def _stay_alive(self) -> None:
        """Touch the queue before its ttl runs out, and right after its store was away: it may have forgotten all."""
        while True:
            self._beat.clear()
            try:
                async with asyncio.timeout(self._ttl / 3):
                    await self._beat.wait()
            except TimeoutError:
                pass
            try:
                await self._touch()
            except StoreUnavailable:
                continue

    async def _touch(self) -> None:
        """Start the ttl of the queue anew. A queue that its store has forgotten is created again."""
        store = self._link.store
        if not await store.touch(self._log, ttl_seconds=self._ttl):
            await store.touch(self._log, ttl_seconds=self._ttl, create=True)
        await store.put(self._metadata_record, {TTL_FIELD: pack_json(self._ttl)}, ttl_seconds=self._ttl)

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
            once = Once(self._link.store, f"{self._log}|once:{message_id}", once_for)
            return asyncio.ensure_future(once.run(lambda: self.push_entry(entry, due_ms)))
        return self.push_entry(entry, due_ms)

    async def push_many(self, messages: Sequence[Data]) -> list[int]:
        """Push messages, and return their ids once all are stored.

        Cancellation: messages that are not on their way yet are not stored.
        """
        entries = [Entry(*pack(data)) for data in messages]
        if not self.is_attached:
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
        log = self._log
        if due_ms is not None:
            log = self._later_log
            entry = structs.replace(entry, headers={**(entry.headers or {}), DUE_HEADER: str(due_ms)})
        if not self.is_attached:
            return self._remember(entry, log)
        return self._post(entry, log)

    def _post(self, entry: Entry, log: str) -> Awaitable[int]:
        try:
            return self._writer.post(log, entry)
        except Overloaded:
            return self._writer.append(log, entry)

    def _remember(self, entry: Entry, log: str) -> Awaitable[int]:
        if len(self._early) == MAX_EARLY_PUSHES:
            raise Overloaded(f"{MAX_EARLY_PUSHES} messages wait for queue {self.name!r} to be attached. Attach it.")
        pushed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._early.append((entry, log, pushed))
        self._link.on_disconnect(self._forget_early)
        return pushed

    def _forget_early(self) -> None:
        early, self._early = self._early, []
        for _, _, pushed in early:
            if not pushed.done():
                pushed.set_exception(NotAttached(f"The bus was disconnected, and queue {self.name!r} never attached."))

    def _push_early(self) -> None:
        early, self._early = self._early, []
        for entry, log, pushed in early:
            if not pushed.cancelled():
                self._link.run(self._pass_on(self._post(entry, log), pushed), self.events, f"onebus-early {log}")

    async def _pass_on(self, receipt: Awaitable[int], pushed: asyncio.Future[int]) -> None:
        try:
            message_id = await receipt
        except BusError as error:
            if not pushed.done():
                pushed.set_exception(error)
        else:
            if not pushed.done():
                pushed.set_result(message_id)

    async def _append(self, log: str, blob: bytes) -> int:
        capacity = self.max_size if log == self._log else None
        first_id = await self._link.store.append(log, blob, capacity=capacity)
        self._pushed += count_of(blob)
        return first_id

    def _push_failed(self, log: str, error: Exception) -> None:
        self._link.run(self.events.emit("error", error), self.events, f"onebus-error {log}")

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

        ``max`` ends the loop after so many messages, ``wait=False`` when no message is waiting. ``prefetch`` sets how
        many are fetched at once, which otherwise adapts to the pace of the loop. Nothing that was fetched and not
        handed over is lost when the loop ends.
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
        )
        return Consumer(self, self._log, options, owner=self._link.client).messages()

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
        if consumer.options.remove and not consumer.stopping.is_set():
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
            messages = list(unread(await store.read(self._log, after=after, limit=limit), after))
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
        if isinstance(key, Mapping):
            return await self._set_metadata(key)
        if value is not _MISSING and key is not None:
            return await self._set_metadata({key: value})
        record = await self._link.store.get(self._metadata_record)
        fields = record.fields if record is not None else {}
        noted = {name: unpack(text, Kind.JSON) for name, text in fields.items()}
        return noted if key is None else noted.get(key)

    async def _set_metadata(self, values: Mapping[str, Data]) -> None:
        if TTL_FIELD in values:
            raise InvalidArgument(f"{TTL_FIELD!r} is what the queue notes by itself; choose another key.")
        fields = {name: pack_json(value) for name, value in values.items()}
        await self._link.store.put(self._metadata_record, fields, ttl_seconds=self._ttl)


def _entry(value: bytes, kind: Kind, key: str | bytes | None, headers: Mapping[str, str] | None) -> Entry:
    for name in headers or ():
        if name.startswith(RESERVED_HEADERS):
            raise InvalidArgument(f"The header {name!r} is reserved; choose one without {RESERVED_HEADERS!r}.")
    return Entry(value, kind, key.encode() if isinstance(key, str) else key, headers)


def _checked_ttl(ttl: float) -> float:
    if not ttl > 0:
        raise InvalidArgument(f"ttl must be greater than 0 seconds, but is {ttl}.")
    return ttl
