"""Two peers that talk to each other, wherever they are, in whatever order they arrive.

    channel:NAME|ROLE       what was sent to the peer with that role: a queue like any other

Each peer consumes the queue of its own role and pushes to that of the other. Who comes and goes is told in the same
queues, by messages that carry a header and are not shown to the user:

    connect, with the session of the sender; the other answers with its own, so that both know of each other
    disconnect, with the session that ends
    end: the channel is over
"""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, Final, Self
from uuid import uuid4

from onebus.errors import AlreadyAttached, BusError, InvalidArgument, NotAttached
from onebus.events import Emitter
from onebus.log.batch import Entry, Kind
from onebus.message import Message
from onebus.objects.link import Link
from onebus.objects.places import place_of_object
from onebus.objects.queue import DEFAULT_TTL_SECONDS, Queue
from onebus.payload import Data

CONTROL_HEADER: Final = "onebus-channel"
SESSION_HEADER: Final = "onebus-session"
ANSWER_HEADER: Final = "onebus-answer"

CONNECT: Final = "connect"
DISCONNECT: Final = "disconnect"
END: Final = "end"


class Channel(Emitter):
    """One end of a channel between two peers. Create it with `Bus.channel`.

    Two peers have opposite roles: one calls `connect` and the other `listen`, or each is given its role and both
    call `connect`. Messages are kept for a peer that is away, as long as the ttl of its queue allows.

    Events: ``connect``, ``remote:connect``, ``disconnect``, ``remote:disconnect``, ``message`` (message), ``end``,
    ``error`` (error).
    """

    def __init__(self, link: Link, name: str, local: str = "local", remote: str = "remote") -> None:
        super().__init__()
        self.name = name
        self.local = local
        self.remote = remote
        self._link = link
        self._place = place_of_object("channel", name)
        if local == remote:
            raise InvalidArgument(f"The roles of two peers must differ, but both are {local!r}.")
        for role in (local, remote):
            place_of_object("channel", role)
        self._inbox: Queue | None = None
        self._outbox: Queue | None = None
        self._session = ""
        self._remote_session = ""

    # Life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    @property
    def is_attached(self) -> bool:
        return self._outbox is not None and self._outbox.is_attached

    @property
    def is_remote_connected(self) -> bool:
        """Whether the other peer is connected, as far as is known here."""
        return bool(self._remote_session)

    async def connect(self, *, ttl: float = DEFAULT_TTL_SECONDS, **options: Any) -> None:
        """Connect to the channel, and receive messages as ``message`` events.

        Takes the options of `Queue.consume` that concern delivery: with ``reliable=True`` each message has to be
        acknowledged.

        Raises:
            AlreadyAttached: this object is connected already.
        """
        await self._open(self.local, self.remote, ttl, options)

    async def attach(self, *, ttl: float = DEFAULT_TTL_SECONDS, **options: Any) -> None:
        """Do the same as `connect`."""
        await self.connect(ttl=ttl, **options)

    async def listen(self, *, ttl: float = DEFAULT_TTL_SECONDS, **options: Any) -> None:
        """Connect with the roles reversed, so that the peer may call `connect` with the same roles."""
        await self._open(self.remote, self.local, ttl, options)

    async def disconnect(self) -> None:
        """Leave the channel; another peer may take the place. Disconnecting twice does nothing."""
        if self.is_attached:
            try:
                await self._tell(DISCONNECT)
            except BusError as error:
                await self.events.emit("error", error)
            await self._leave()

    async def detach(self) -> None:
        """Do the same as `disconnect`."""
        await self.disconnect()

    async def end(self) -> None:
        """End the channel for both peers: the other one disconnects, and its ``end`` event tells why.

        Raises:
            NotAttached: this object is not connected.
        """
        self._connected()
        await self._tell(END)
        await self._leave()

    async def _open(self, own_role: str, other_role: str, ttl: float, options: dict[str, Any]) -> None:
        if self._inbox is not None:
            raise AlreadyAttached(f"cannot connect to channel {self.name!r}: already connected")
        for option in ("max", "remove", "index"):
            if option in options:
                raise InvalidArgument(f"A channel receives all messages, and removes them: {option}= is not for it.")
        inbox = Queue(self._link, self.name, ttl=ttl, log=f"{self._place}|{own_role}")
        outbox = Queue(self._link, self.name, ttl=ttl, log=f"{self._place}|{other_role}")
        messages = inbox.consume(**options)
        for queue in (inbox, outbox):
            queue.on("error", lambda error: self.events.emit("error", error))
        self._inbox, self._outbox, self._session = inbox, outbox, uuid4().hex[:12]
        try:
            await outbox.attach()
            await inbox.attach()
            await self._tell(CONNECT)
        except BaseException:
            await self._close_queues()
            raise
        # Left before its queues are, so that the peer hears of it.
        self._link.enter(self, first=True)
        await self.events.emit("connect")
        if self._inbox is inbox:
            self._link.run(self._receive(messages), self.events, f"onebus-channel {self.name}")

    async def _leave(self) -> None:
        self._link.leave(self)
        await self._close_queues()
        self._remote_session = ""
        await self.events.emit("disconnect")

    async def _close_queues(self) -> None:
        inbox, outbox, self._inbox, self._outbox = self._inbox, self._outbox, None, None
        for queue in (inbox, outbox):
            if queue is not None:
                await queue.detach()

    # Sending

    def send(self, data: Data) -> Awaitable[int]:
        """Send text, bytes or JSON to the peer, and return an awaitable that gives its id once it is stored.

        The peer need not be connected. As with `Queue.push`, awaiting is not necessary.

        Raises:
            NotAttached: this object is not connected.
        """
        return self._connected().push(data)

    async def send_to(self, role: str, data: Data) -> int:
        """Send to the peer with a role, without being connected to the channel."""
        place_of_object("channel", role)
        async with Queue(self._link, self.name, log=f"{self._place}|{role}") as outbox:
            return await outbox.push(data)

    async def ack(self, message_id: int) -> None:
        """Acknowledge a message and all before it; see `Queue.ack`."""
        if self._inbox is not None:
            await self._inbox.ack(message_id)

    def _connected(self) -> Queue:
        if self._outbox is None or not self._outbox.is_attached:
            raise NotAttached(f"Channel {self.name!r} is not connected. Await its connect() or listen() first.")
        return self._outbox

    async def _tell(self, what: str, **more: str) -> None:
        headers = {CONTROL_HEADER: what, SESSION_HEADER: self._session, **more}
        await self._connected().push_entry(Entry(b"", Kind.BYTES, None, headers))

    # Receiving

    async def _receive(self, messages: AsyncGenerator[Message]) -> None:
        async with aclosing(messages):
            async for message in messages:
                control = message.headers.get(CONTROL_HEADER)
                if control is None:
                    await self.events.emit("message", message)
                    continue
                # Settles this one alone: messages before it may still be in the user's hands.
                await message.ack()
                await self._control(control, message)

    async def _control(self, what: str, message: Message) -> None:
        session = message.headers.get(SESSION_HEADER, "")
        if what == CONNECT:
            is_news, self._remote_session = session != self._remote_session, session
            if ANSWER_HEADER not in message.headers and self.is_attached:
                await self._tell(CONNECT, **{ANSWER_HEADER: "yes"})
            if is_news:
                await self.events.emit("remote:connect")
        elif what == DISCONNECT and session == self._remote_session:
            self._remote_session = ""
            await self.events.emit("remote:disconnect")
        elif what == END and self.is_attached:
            await self._leave()
            await self.events.emit("end")
