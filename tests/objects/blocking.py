"""The blocking objects behind the async interface, so that the same tests tell whether they behave alike.

Each call runs in a thread of its own, as in a program of many threads; handlers run in the event loop of the test while
the thread that called them waits, as blocking code would let it wait.
"""

import asyncio
import inspect
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any, Self, cast

import pytest

from onebus import Bus, sync
from onebus.sync.events import Emitter
from onebus.sync.portal import Portal
from onebus.sync.pusher import Pushed
from tests.backings import Backing

BLOCKING_KINDS = ("memory-blocking", "sqlite-blocking")
"""Kinds of backings on which the tests get blocking objects."""

ASYNC_ONLY = {
    "test_a_bus_disconnects_while_it_serves": "a handler that runs in a thread cannot be cancelled",
    "test_a_server_that_stops_leaves_to_others_what_it_has_not_begun": "a handler that runs in a thread goes on",
    "test_detaching_while_consuming_loses_nothing": "events of two tasks may overtake each other here",
    "test_a_handler_may_stop_its_server": "handlers call from another thread here; tests/test_sync.py has this one",
    "test_cancelling_the_consuming_task_loses_nothing": "a thread that returns a message cannot be cancelled",
}

_threads = ThreadPoolExecutor(200, thread_name_prefix="test-blocking")
_END = object()


async def in_thread(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, lambda: function(*arguments, **options))


class Blocking:
    """Any blocking object: its methods become async, and what they return is adapted as well."""

    _plain: tuple[str, ...] = ()
    """Methods that wait for nothing, and are not async in the async object either."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped" or name.startswith("__"):
            raise AttributeError(name)
        if not hasattr(self.wrapped, name):
            return inside(self.wrapped, name)
        value = getattr(self.wrapped, name)
        if not inspect.ismethod(value):
            return adapted(value)
        if name in self._plain:
            return lambda *arguments, **options: adapted(value(*arguments, **options))
        return lambda *arguments, **options: in_thread(value, *arguments, **options)

    def __repr__(self) -> str:
        return repr(self.wrapped)


class Inside:
    """A store or a link inside a blocking bus, used where it lives: in the loop of that bus."""

    def __init__(self, portal: Portal, wrapped: Any) -> None:
        self._portal = portal
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        if name == "store":
            return Inside(self._portal, self._wrapped.store)
        value = getattr(self._wrapped, name, None)
        if not inspect.iscoroutinefunction(value):
            pytest.skip("about the inside of the async objects")
        return lambda *arguments, **options: in_thread(self._portal.call, value(*arguments, **options))


def inside(wrapped: Any, name: str) -> Any:
    """Return what only the async objects have."""
    if name == "link" and isinstance(wrapped, sync.Bus):
        return Inside(wrapped.portal, wrapped.wrapped.link)
    if name == "store" and isinstance(wrapped, sync.Queue):
        return Inside(wrapped._portal, wrapped._queue.store)
    if name in ("_log", "_later_log", "_dead_log") and isinstance(wrapped, sync.Queue):
        return getattr(wrapped._queue, name)
    pytest.skip("about the inside of the async objects")


class BlockingEmitter(Blocking):
    """An object with events."""

    wrapped: Emitter

    def __init__(self, wrapped: Emitter) -> None:
        super().__init__(wrapped)
        self._relays: list[tuple[Callable[..., Any], Callable[..., Any]]] = []

    def on(self, event: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        self.wrapped.on(event, self._relay(handler))
        return handler

    def once(self, event: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        self.wrapped.once(event, self._relay(handler))
        return handler

    def off(self, event: str, handler: Callable[..., Any] | None = None) -> None:
        if handler is None:
            self.wrapped.off(event)
        for original, relay in self._relays:
            if original == handler:
                self.wrapped.off(event, relay)

    def _relay(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        relay = relayed(handler)
        self._relays.append((handler, relay))
        return relay


class BlockingQueue(BlockingEmitter):
    _loop: "weakref.ref[AsyncGenerator[Any]] | None" = None

    async def __aenter__(self) -> Self:
        await self.attach()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.detach()

    def push(self, data: Any, **options: Any) -> Awaitable[int]:
        return AwaitedPush(self.wrapped.push_soon(data, **options))  # type: ignore[attr-defined]

    async def push_many(self, messages: list[Any]) -> list[int]:
        # Blocking code has to attach first. Async code need not, so this stands for a thread that waits for another.
        await self._attached()
        ids: list[int] = await in_thread(self.wrapped.push_many, messages)  # type: ignore[attr-defined]
        return ids

    def consume(self, **options: Any) -> AsyncGenerator[Any]:
        messages = self._consumed(self.wrapped.consume(**options), self._loop)  # type: ignore[attr-defined]
        self._loop = weakref.ref(messages)
        return messages

    async def _consumed(
        self, messages: Generator[Any], before: "weakref.ref[AsyncGenerator[Any]] | None"
    ) -> AsyncGenerator[Any]:
        await self._attached()
        while before is not None and before() is None and self.wrapped.is_consuming:  # type: ignore[attr-defined]
            # The loop before this one was left. In blocking code it has ended with that, in async code soon after.
            await asyncio.sleep(0.005)
        async with aclosing(stepped(messages, self.wrapped.stop)) as consumed:  # type: ignore[attr-defined]
            async for message in consumed:
                yield message

    async def _attached(self) -> None:
        while not self.wrapped.is_attached:  # type: ignore[attr-defined]
            await asyncio.sleep(0.005)


class AwaitedPush:
    def __init__(self, pushed: Pushed) -> None:
        self._pushed = pushed

    def __await__(self) -> Generator[Any, None, int]:
        return in_thread(self.result).__await__()

    def result(self) -> int:
        return self._pushed.result()


class BlockingChannel(BlockingEmitter):
    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    def send(self, data: Any) -> Awaitable[int]:
        sent = AwaitedPush(self.wrapped.send_soon(data))  # type: ignore[attr-defined]
        if not self.wrapped.is_attached:  # type: ignore[attr-defined]
            # Async code hears of that at once.
            sent.result()
        return sent


class BlockingPubSub(BlockingEmitter):
    def messages(self) -> AsyncGenerator[Any]:
        return stepped(self.wrapped.messages(), None)  # type: ignore[attr-defined]


class BlockingService(BlockingEmitter):
    async def serve(self, handler: Callable[..., Any], **options: Any) -> None:
        await in_thread(self.wrapped.serve, relayed(handler), **options)  # type: ignore[attr-defined]

    def stream(self, *arguments: Any, **options: Any) -> AsyncGenerator[Any]:
        return stepped(self.wrapped.stream(*arguments, **options), None)  # type: ignore[attr-defined]


class BlockingPersisted(Blocking):
    def __init__(self, wrapped: sync.Persisted) -> None:
        object.__setattr__(self, "wrapped", wrapped)

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped" or name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.wrapped, name)
        is_own = name in ("save", "load", "persist", "unpersist")
        return (lambda *arguments, **options: in_thread(value, *arguments, **options)) if is_own else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.wrapped, name, value)


class BlockingTopic(Blocking):
    _plain = ("consume",)


class BlockingTopicConsumer(BlockingEmitter):
    _plain = ("stop",)

    async def __aenter__(self) -> Self:
        await self.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncGenerator[Any]:
        return stepped(iter(self.wrapped), self.wrapped.stop)  # type: ignore[attr-defined, call-overload]

    async def process(self, handler: Callable[..., Any], **options: Any) -> None:
        await in_thread(self.wrapped.process, relayed(handler), **options)  # type: ignore[attr-defined]


class BlockingTopicBatch(Blocking):
    _plain = ("finish",)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.wrapped)

    def __len__(self) -> int:
        return len(self.wrapped)


class BlockingBus(BlockingEmitter):
    _plain = ("queue", "channel", "pubsub", "service", "persistify", "topic", "consume", "with_log", "debug")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(sync.Bus(*arguments, **options))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()


def create_bus(backing: Backing, **options: Any) -> Bus:
    """Return a bus on the place of a test, or one that looks like it."""
    if backing.kind in BLOCKING_KINDS:
        return cast("Bus", BlockingBus(backing.url, **options))
    return Bus(backing.url, **options)


def skip_async_only(request: pytest.FixtureRequest) -> None:
    reason = ASYNC_ONLY.get(request.node.originalname)
    if request.param in BLOCKING_KINDS and reason is not None:
        pytest.skip(reason)


ADAPTERS: dict[type, Callable[[Any], Any]] = {
    sync.Queue: BlockingQueue,
    sync.Channel: BlockingChannel,
    sync.PubSub: BlockingPubSub,
    sync.Service: BlockingService,
    sync.Persisted: BlockingPersisted,
    sync.DeadLetters: Blocking,
    sync.Message: Blocking,
    sync.Topic: BlockingTopic,
    sync.TopicBatch: BlockingTopicBatch,
    sync.TopicConsumer: BlockingTopicConsumer,
}


def adapted(value: Any) -> Any:
    adapter = ADAPTERS.get(type(value))
    return value if adapter is None else adapter(value)


def relayed(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a blocking function that runs a handler of the test where its test runs."""
    loop = asyncio.get_running_loop()

    async def call(values: tuple[Any, ...]) -> Any:
        result = handler(*map(adapted, values))
        return await result if inspect.isawaitable(result) else result

    async def following(replies: AsyncGenerator[Any]) -> Any:
        return await anext(replies, _END)

    def generate(*values: Any) -> Iterator[Any]:
        replies = handler(*values)
        while (reply := asyncio.run_coroutine_threadsafe(following(replies), loop).result()) is not _END:
            yield reply

    def run(*values: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call(values), loop).result()

    return generate if inspect.isasyncgenfunction(handler) else run


async def stepped(items: Generator[Any], stop: Callable[[], None] | None) -> AsyncGenerator[Any]:
    """Iterate over a blocking generator. Whoever leaves while it waits stops it first, as another thread would."""
    step: asyncio.Future[Any] | None = None
    try:
        while True:
            step = asyncio.ensure_future(in_thread(next, items, _END))
            item = await asyncio.shield(step)
            if item is _END:
                return
            yield adapted(item)
    finally:
        if step is not None and not step.done() and stop is not None:
            await in_thread(stop)
        if step is not None:
            with suppress(Exception):
                await step
        await in_thread(items.close)
