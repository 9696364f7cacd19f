"""A queue for blocking code."""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from onebus.errors import NotAttached
from onebus.objects.options import ConsumeOptions
from onebus.objects.queue import ONCE_SECONDS
from onebus.objects.queue import Queue as AsyncQueue
from onebus.payload import Data
from onebus.sync.consumer import PortionConsumer
from onebus.sync.deadletters import DeadLetters
from onebus.sync.events import Emitter
from onebus.sync.message import Message
from onebus.sync.portal import Portal
from onebus.sync.pusher import Pushed, Pusher

_MISSING: Final = object()


class Queue(Emitter):
    """A queue of the bus; see `onebus.objects.queue.Queue`. Create it with `Bus.queue`.

    It may be used by several threads, but only one of them can consume; the others use objects of their own.
    """

    def __init__(self, portal: Portal, queue: AsyncQueue) -> None:
        super().__init__(portal, queue.events)
        self._queue = queue
        self._pusher = Pusher(portal, queue.events)
        self._dead = DeadLetters(portal, queue.dead)

    # Life

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    @property
    def name(self) -> str:
        return self._queue.name

    @property
    def max_size(self) -> int | None:
        return self._queue.max_size

    @property
    def is_attached(self) -> bool:
        return self._queue.is_attached

    def attach(self, ttl: float | None = None) -> bool:
        """Attach to the queue, and return whether it existed; see `onebus.objects.queue.Queue.attach`."""
        return self._portal.call(self._queue.attach(ttl))

    def detach(self) -> None:
        """Leave the queue, once all that was pushed is stored; see `onebus.objects.queue.Queue.detach`."""
        self._portal.call(self._queue.detach())

    def close(self) -> None:
        """End the queue for everybody; see `onebus.objects.queue.Queue.close`."""
        self._portal.call(self._queue.close())

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
    ) -> int:
        """Push a message, and return its id when it is stored; see `onebus.objects.queue.Queue.push`.

        Raises:
            NotAttached: the queue is not attached: nobody could attach it while this waits.
            NotSerializable, PayloadTooLarge, LogFull: the message cannot be stored.
        """
        return self._pusher.push_and_wait(
            partial(
                self._push_attached,
                data,
                key=key,
                headers=headers,
                delay=delay,
                at=at,
                message_id=message_id,
                once_for=once_for,
            )
        )

    def push_soon(
        self,
        data: Data,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
        at: float | None = None,
        message_id: str | None = None,
        once_for: float = ONCE_SECONDS,
    ) -> Pushed:
        """Push a message without waiting until it is stored. ``result()`` of what is returned waits, and gives its id.

        If it fails, and nobody asks for the result, that is an ``error`` event. What is pushed before the queue is
        attached is pushed when it is. Whoever pushes faster than the store can follow waits here after all.
        """
        return self._pusher.push(
            partial(
                self._queue.push,
                data,
                key=key,
                headers=headers,
                delay=delay,
                at=at,
                message_id=message_id,
                once_for=once_for,
            )
        )

    def push_many(self, messages: Sequence[Data]) -> list[int]:
        """Push messages, and return their ids when all are stored; see `onebus.objects.queue.Queue.push_many`.

        Raises:
            NotAttached: the queue is not attached: nobody could attach it while this waits.
        """
        return self._portal.call(self._push_many(messages))

    @property
    def pushed(self) -> int:
        """How many messages this object has pushed."""
        return self._queue.pushed

    def _push_attached(self, data: Data, **options: Any) -> Awaitable[int]:
        self._check_attached()
        return self._queue.push(data, **options)

    async def _push_many(self, messages: Sequence[Data]) -> list[int]:
        self._check_attached()
        return await self._queue.push_many(messages)

    def _check_attached(self) -> None:
        if not self.is_attached:
            raise NotAttached(f"Queue {self.name!r} is not attached. Call its attach() first, or use it in `with`.")

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
    ) -> Generator[Message]:
        """Iterate over messages as they come; see `onebus.objects.queue.Queue.consume` for what the options mean.

        The loop ends when `stop` is called, in whatever thread, when ``timeout`` seconds have passed without a
        message, or when the queue is detached. What was fetched and not handed to the loop goes back to the queue.

        Raises:
            AlreadyConsuming: this object is consuming already.
            NotAttached: the queue is not attached: nobody could attach it while this waits.
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
        return self._messages(options)

    def start(self, **options: Any) -> None:
        """Consume in the background, with a ``message`` event for each message; takes the options of `consume`.

        Handlers are called one after the other, in another thread; see `onebus.objects.queue.Queue.start`.
        """
        self._portal.call(self._queue.start(**options))

    def stop(self) -> None:
        """Stop consuming; see `onebus.objects.queue.Queue.stop`."""
        self._portal.call(self._queue.stop())

    def ack(self, message_id: int) -> None:
        """Acknowledge a message and all before it, now; see `onebus.objects.queue.Queue.ack`."""
        self._portal.call(self._queue.ack(message_id))

    def put_back(self, message: Message) -> None:
        """Let the message that the loop was handed last count as not handed over.

        See `onebus.objects.queue.Queue.put_back`.
        """
        self._portal.call(self._put_back(message))

    @property
    def is_consuming(self) -> bool:
        return self._queue.is_consuming

    @property
    def consumed(self) -> int:
        """How many messages this object has consumed."""
        return self._queue.consumed

    async def _put_back(self, message: Message) -> None:
        self._queue.put_back(message.wrapped)

    def _messages(self, options: ConsumeOptions) -> Generator[Message]:
        self._check_attached()
        portal = self._portal
        consumer = self._queue.consumer(PortionConsumer, options)
        try:
            while (portion := portal.call(consumer.next())) is not None:
                for holding, messages in portion:
                    for message in messages:
                        if not consumer.hand_over(holding, message):
                            return
                        yield Message(portal, message)
        finally:
            portal.finish(consumer.close())

    # Dead letters

    @property
    def dead(self) -> DeadLetters:
        """The messages of this queue that could not be handled."""
        return self._dead

    def redrive(self, max: int | None = None) -> int:  # noqa: A002
        """Push dead letters once more, oldest first, and return how many."""
        return self._portal.call(self._queue.redrive(max))

    # Asking

    def exists(self) -> bool:
        """Return whether the queue exists, attached or not."""
        return self._portal.call(self._queue.exists())

    def count(self) -> int:
        """Return how many messages wait to be consumed."""
        return self._portal.call(self._queue.count())

    def peek(self, limit: int = 10) -> list[Message]:
        """Return the messages that would be consumed next; they stay where they are."""
        return [Message(self._portal, message) for message in self._portal.call(self._queue.peek(limit))]

    def ttl(self) -> float | None:
        """Return for how many seconds the queue lives without anybody attached, or None if it does not exist."""
        return self._portal.call(self._queue.ttl())

    def flush(self) -> None:
        """Remove all messages, delayed ones included."""
        self._portal.call(self._queue.flush())

    # Metadata

    def metadata(self, key: str | Mapping[str, Data] | None = None, value: Data = _MISSING) -> Data:
        """Note something on the queue, or read what was noted; see `onebus.objects.queue.Queue.metadata`."""
        if value is _MISSING:
            return self._portal.call(self._queue.metadata(key))
        return self._portal.call(self._queue.metadata(key, value))
