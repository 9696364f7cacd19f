"""Requests and replies: a service has any number of servers, and each request goes to one of them.

service:NAME            the requests: a queue like any other
service:NAME            a signal that its servers listen to, so that a client can tell whether there are any
service:NAME|CLIENT     a signal that carries the replies to one client
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final
from uuid import uuid4

import msgspec

from onebus.errors import BusError, InvalidArgument, NoOneServes, NotAttached, RequestFailed, RequestTimedOut
from onebus.events import Emitter
from onebus.log.batch import Entry, Kind
from onebus.message import Message
from onebus.objects.ear import Ear
from onebus.objects.link import Link
from onebus.objects.places import place_of_object
from onebus.objects.queue import Queue
from onebus.payload import Data, pack, unpack

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
DEFAULT_CONCURRENCY: Final = 16
KNOWN_SECONDS: Final = 1.0
"""How long a client believes that a service is there before it looks again."""
MAX_WAITING_REPLIES: Final = 1000

REQUEST_HEADER: Final = "onebus-request"
REPLY_TO_HEADER: Final = "onebus-reply-to"
EXPIRES_HEADER: Final = "onebus-expires"

Handler = Callable[[Any], Any]
"""Takes the data of a request and returns the reply, or awaits it, or yields several."""


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """One reply on its way to a client; the last one has ``more=False``, and maybe nothing to say."""

    request: str
    kind: int = Kind.JSON
    value: bytes = b"null"
    more: bool = False
    error: str = ""
    is_empty: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Reply)


class Service(Emitter):
    """A service of the bus, to serve or to use. Create it with `Bus.service`.

    Delivery: at most once. A request that no server takes in time is dropped.

    Events: ``serving``, ``connected``, ``request`` (data), ``disconnected``, ``error`` (error).
    """

    def __init__(self, link: Link, name: str) -> None:
        super().__init__()
        self.name = name
        self._link = link
        self._place = place_of_object("service", name)
        self._requests = Queue(link, name, log=self._place)
        self._requests.on("error", lambda error: self.events.emit("error", error))
        self._reply_signal = f"{self._place}|{uuid4().hex[:16]}"
        self._replies = Ear(self._reply_signal, self._hear_reply, self.events)
        self._presence = Ear(self._place, _ignore, self.events)
        self._waiting: dict[str, asyncio.Queue[Reply]] = {}
        self._attaching = asyncio.Lock()
        self._answered = asyncio.Event()
        self._answered.set()
        self._handling: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._known_until = 0.0

    # Serving

    @property
    def is_serving(self) -> bool:
        return self._serving is not None and not self._serving.done()

    async def serve(
        self,
        handler: Handler,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        max: int | None = None,  # noqa: A002
    ) -> None:
        """Answer requests with `handler`, in the background, until `stop` is called.

        The handler takes the data of a request. What it returns is the reply; an async generator replies with all
        that it yields, one after the other. What it raises is told to the client: type and text, no traceback.
        Up to ``concurrency`` requests are handled at a time; ``max`` stops serving after so many.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency must be at least 1, but is {concurrency}.")
        if self.is_serving:
            raise InvalidArgument(f"This object serves {self.name!r} already; stop it first, or use another.")
        await self._attach()
        await self._presence.open(self._link.store)
        messages = self._requests.consume(max=max, prefetch=concurrency)
        work = self._serve(messages, handler, asyncio.Semaphore(concurrency))
        self._serving = self._link.run(work, self.events, f"onebus-serve {self.name}")
        await self.events.emit("serving")

    async def stop(self, grace: float = 10.0) -> None:
        """Take no more requests, and wait up to `grace` seconds for those that are being handled."""
        if self._serving is not None:
            serving, self._serving = self._serving, None
            await self._presence.close()
            await self._requests.stop()
            if serving is not asyncio.current_task():
                # All that was not handed over is given back. It may wait for a handler that never ends.
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
        # A handler may be what stops its server: it must not wait for itself.
        this = asyncio.current_task()
        handling = [task for task in self._handling if task is not this]
        if handling:
            _, late = await asyncio.wait(handling, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _serve(self, messages: AsyncGenerator[Message], handler: Handler, slots: asyncio.Semaphore) -> None:
        async with aclosing(messages):
            # A request is taken when it can be handled, so that a server that stops leaves the others where they are.
            await slots.acquire()
            async for message in messages:
                task = self._link.run(self._handle(message, handler), self.events, f"onebus-request {self.name}")
                self._handling.add(task)
                task.add_done_callback(self._handling.discard)
                task.add_done_callback(lambda _: slots.release())
                await slots.acquire()
        await self._presence.close()

    async def _handle(self, message: Message, handler: Handler) -> None:
        headers = message.headers
        if self._link.clock() > int(headers.get(EXPIRES_HEADER, "0")):
            return
        reply_to, request = headers.get(REPLY_TO_HEADER), headers.get(REQUEST_HEADER, "")
        await self.events.emit("request", message.data)
        try:
            result = handler(message.data)
            if isinstance(result, AsyncIterable):
                async for part in result:
                    await self._reply(reply_to, _reply(request, part, more=True))
                await self._reply(reply_to, Reply(request, is_empty=True))
                return
            if inspect.isawaitable(result):
                result = await result
            await self._reply(reply_to, _reply(request, result))
        except Exception as error:
            code = error.code if isinstance(error, BusError) else type(error).__name__
            await self._reply(reply_to, _error(request, code, str(error)))
            self._link.log.info("a request to %s failed: %s: %s", self.name, code, error)

    async def _reply(self, reply_to: str | None, reply: Reply) -> None:
        if reply_to is not None:
            await self._link.store.signal(reply_to, _encoder.encode(reply))

    # Requesting

    async def request(self, data: Data, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Any:
        """Ask the service, and return its reply; of several replies, the last.

        Raises:
            NoOneServes: there is no server at this moment; nothing was sent.
            RequestTimedOut: no reply came in time.
            RequestFailed: the server answered with an error.
        """
        last: Any = None
        async with aclosing(self.stream(data, timeout)) as replies:
            async for reply in replies:
                last = reply
        return last

    async def stream(self, data: Data, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> AsyncGenerator[Any]:
        """Ask the service, and iterate over its replies as they come; `timeout` is for each of them.

        Raises what `request` raises.
        """
        await self._connect()
        request = uuid4().hex
        replies = self._waiting[request] = asyncio.Queue(MAX_WAITING_REPLIES)
        self._answered.clear()
        try:
            await self._send(data, timeout, {REQUEST_HEADER: request, REPLY_TO_HEADER: self._reply_signal})
            while True:
                try:
                    async with asyncio.timeout(timeout):
                        reply = await replies.get()
                except TimeoutError:
                    raise RequestTimedOut(f"{self.name!r} did not reply within {timeout} s.") from None
                if reply.error:
                    raise RequestFailed(reply.value.decode(), reply.error)
                if not reply.is_empty:
                    yield unpack(reply.value, Kind(reply.kind))
                if not reply.more:
                    return
        finally:
            self._waiting.pop(request, None)
            if not self._waiting:
                self._answered.set()

    async def notify(self, data: Data, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Send a request that needs no reply; a server that does not take it within `timeout` seconds drops it.

        Raises:
            NoOneServes: there is no server at this moment; nothing was sent.
        """
        await self._connect()
        await self._send(data, timeout, {})

    async def disconnect(self, grace: float = 10.0) -> None:
        """Stop serving and asking. Those who wait for a reply get `grace` seconds for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._answered.wait()
        await self.stop(grace)
        await self._replies.close()
        for request in list(self._waiting):
            self._give_up(request, "disconnected", f"disconnected from {self.name!r} before a reply came")
        self._link.leave(self)
        if self._requests.is_attached:
            await self._requests.detach()
            await self.events.emit("disconnected")

    async def detach(self) -> None:
        await self.disconnect(grace=0)

    async def _attach(self) -> None:
        async with self._attaching:
            if not self._requests.is_attached:
                await self._requests.attach()
                self._link.enter(self, first=True)

    async def _connect(self) -> None:
        if not self._replies.is_open or not self._requests.is_attached:
            await self._attach()
            if await self._replies.open(self._link.store):
                await self.events.emit("connected")
        now = asyncio.get_running_loop().time()
        if now > self._known_until:
            if not await self._link.store.signal(self._place, b""):
                raise NoOneServes(f"No one serves {self.name!r}. Start a server, and ask again.")
            self._known_until = now + KNOWN_SECONDS

    async def _send(self, data: Data, timeout: float, headers: dict[str, str]) -> None:
        value, kind = pack(data)
        if not self._requests.is_attached:
            raise NotAttached(f"Service {self.name!r} was disconnected before the request was sent.")
        expires_ms = self._link.clock() + round(timeout * 1000)
        await self._requests.push_entry(Entry(value, kind, None, {**headers, EXPIRES_HEADER: str(expires_ms)}))

    async def _hear_reply(self, payload: bytes) -> None:
        reply = _decoder.decode(payload)
        replies = self._waiting.get(reply.request)
        if replies is None:
            return
        if replies.full():
            # Whoever does not read must not hold up those who do.
            self._give_up(reply.request, "overrun", f"more than {MAX_WAITING_REPLIES} replies wait to be read")
        else:
            replies.put_nowait(reply)

    def _give_up(self, request: str, code: str, text: str) -> None:
        """Let whoever waits for replies know that no more will come."""
        replies = self._waiting.pop(request)
        if replies.full():
            replies.get_nowait()
        replies.put_nowait(_error(request, code, text))


def _error(request: str, code: str, text: str) -> Reply:
    return Reply(request, Kind.TEXT, text.encode(errors="replace"), error=code)


def _reply(request: str, data: Any, *, more: bool = False) -> Reply:
    value, kind = pack(data)
    return Reply(request, kind, value, more=more)


async def _ignore(_: bytes) -> None:
    """Being there is all that matters."""
