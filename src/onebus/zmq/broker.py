"""A broker: publishers and consumers of raintank-queue talk to it, and a store keeps their messages."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Self

import zmq

from onebus.bus import Bus
from onebus.errors import BusError, InvalidArgument
from onebus.log.retention import KEEP_ALL, Retention
from onebus.objects.topics.description import DEFAULT_PARTITIONS, checked_partitions
from onebus.objects.topics.names import checked_group
from onebus.objects.topics.share import begins_at_end
from onebus.zmq.addresses import (
    CONSUMER_SOCKET_ADDR,
    MGMT_URL,
    PUBLISHER_SOCKET_ADDR,
    is_on_this_machine,
    receipt_address,
)
from onebus.zmq.audience import PLAIN_GROUP, Audience
from onebus.zmq.burst import BurstSocket
from onebus.zmq.curve import guard
from onebus.zmq.echoes import Echoes
from onebus.zmq.frames import MAX_FRAME_BYTES
from onebus.zmq.intake import Intake
from onebus.zmq.management import Management
from onebus.zmq.outlet import Outlet
from onebus.zmq.receipts import Receipts
from onebus.zmq.stream import Stream
from onebus.zmq.team import Member, Team

_log = logging.getLogger("onebus")

StreamKey = tuple[str, str | None]
"""A topic, and a group that acknowledges; None stands for all groups that do not."""


class Broker:
    """Takes messages from publishers over ZeroMQ, stores them, and sends them to consumers that share partitions.

    ``bus`` is a bus that is connected, or the URL of a store. The two sockets and the management server are those of
    raintank-queue, whose clients need not be changed; a third socket, at the port before that of the publishers, gives
    receipts to `Publisher`. ``start`` says where a group that is new begins: at the ``"end"`` or the ``"beginning"``.

    With a ``secret``, whoever does not know it can neither publish nor join nor listen: the sockets are encrypted with
    CurveZMQ. ``open_sockets`` leaves them open for plain clients, on a network that is trusted. Without a secret,
    addresses that other machines can reach are refused.

    Delivery: at least once to `Consumer`, which acknowledges. Plain clients cannot: what was handed to their
    connection counts as delivered. Order: per partition.
    """

    def __init__(
        self,
        bus: Bus | str | Sequence[str],
        consumer_socket_addr: str = CONSUMER_SOCKET_ADDR,
        publisher_socket_addr: str = PUBLISHER_SOCKET_ADDR,
        mgmt_url: str = MGMT_URL,
        *,
        receipt_socket_addr: str | None = None,
        flush_interval: float = 0.1,
        partitions: int = DEFAULT_PARTITIONS,
        retention: Retention = KEEP_ALL,
        start: str = "end",
        secret: str = "",
        open_sockets: bool = False,
    ) -> None:
        if flush_interval <= 0:
            raise InvalidArgument("flush_interval is a time in seconds, greater than 0.")
        self._consumer_socket_addr = consumer_socket_addr
        self._publisher_socket_addr = publisher_socket_addr
        self._receipt_socket_addr = receipt_socket_addr or receipt_address(publisher_socket_addr)
        sockets = (consumer_socket_addr, publisher_socket_addr, self._receipt_socket_addr)
        _check_reach([*sockets, mgmt_url], secret)
        self._socket_secret = "" if open_sockets else secret
        self._given_bus = bus if isinstance(bus, Bus) else None
        self._bus = bus if isinstance(bus, Bus) else Bus(bus)
        self._flush_interval = flush_interval
        self._begins_at_end = begins_at_end(start)
        self._echoes = Echoes()
        self._intake = Intake(self._bus, checked_partitions(partitions), retention, self._echoes)
        self._management = Management(mgmt_url, secret=secret, left=self._left)
        self._management.on("join", self._join)
        self._management.on("ready", self._ready)
        self._management.on("ack", self._acknowledged)
        self._streams: dict[StreamKey, Stream] = {}
        self._inboxes: dict[str, str] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._parts: list[asyncio.Task[None]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._exit = AsyncExitStack()

    @property
    def refused(self) -> int:
        """How many frames of publishers, or arrays in them, were refused since the start."""
        return self._intake.refused

    # Life

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        await self._exit.aclose()

    async def _open(self) -> None:
        if self._given_bus is None:
            await self._exit.enter_async_context(self._bus)
        self._audience = Audience(self._bus.link.store)
        context = zmq.Context()
        self._exit.callback(context.destroy, linger=0)
        to_consumers = context.socket(zmq.XPUB)
        self._outlet = Outlet(to_consumers, self._subscribed)
        self._exit.callback(self._outlet.close)
        self._bind(to_consumers, self._consumer_socket_addr)
        pull = self._opened(context.socket(zmq.PULL), self._publisher_socket_addr)
        router = self._opened(context.socket(zmq.ROUTER), self._receipt_socket_addr)
        self._exit.push_async_callback(self._end_background)
        self._parts = [
            self._run(self._outlet.listen()),
            self._run(self._intake.work()),
            self._run(self._flush_always()),
            self._run(self._take(pull)),
            self._run(self._take_for_receipts(router)),
        ]
        self._exit.push_async_callback(self._close_streams)
        await self._management.open()
        self._exit.push_async_callback(self._management.close)
        self._parts.append(self._run(self._management.serve()))

    def _opened(self, socket: "zmq.Socket[bytes]", address: str) -> BurstSocket:
        opened = BurstSocket(socket)
        self._exit.callback(opened.close)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._bind(socket, address)
        return opened

    def _bind(self, socket: "zmq.Socket[bytes]", address: str) -> None:
        if self._socket_secret:
            guard(socket, self._socket_secret)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise InvalidArgument(f"{address} cannot be used: {zmq.strerror(error.errno or 0)}.") from None

    async def wait(self) -> None:
        """Wait until the broker ends. It does so only if a part of it fails, which raises here what went wrong."""
        await asyncio.gather(*self._parts)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the broker failed", exc_info=error)

    async def _end_background(self) -> None:
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close_streams(self) -> None:
        streams, self._streams = self._streams, {}
        await asyncio.gather(*(stream.close() for stream in streams.values()), *self._closing)

    # Publishers

    async def _take(self, pull: BurstSocket) -> None:
        while True:
            for frames in await pull.receive():
                await self._intake.put(b"".join(frames), lambda _: None)

    async def _take_for_receipts(self, router: BurstSocket) -> None:
        receipts = Receipts(router)
        while True:
            for peer, *frames in await router.receive():
                if len(frames) != 3:
                    self._intake.refused += 1
                    _log.warning("a request for a receipt has %d frames instead of 3", len(frames))
                    continue
                publisher, number, frame = frames
                give = receipts.expect(peer, publisher, number)
                if give is not None:
                    await self._intake.put(frame, give)

    # Consumers

    async def _join(self, client: str, said: Mapping[str, Any]) -> None:
        topic, group = _text(said, "topic"), _text(said, "group")
        inbox = _text(said, "inbox") if "inbox" in said else None
        checked_group(topic, group)
        if inbox is None and ":" in topic:
            raise InvalidArgument(f"Plain clients split rooms at ':', and would mistake {topic!r} for another topic.")
        partitions = await self._intake.partitions_of(topic)
        awaited = await self._audience.enter(topic, group) if inbox is None else set()
        if not self._management.has(client):
            if inbox is None and not any(group in stream.teams for stream in self._streams_of(topic, group)):
                self._forget(topic, group)
            return
        if inbox is not None:
            self._inboxes[inbox] = client
        key = (topic, None if inbox is None else group)
        stream = self._streams.get(key)
        if stream is not None:
            stream.join(group, client, inbox)
            return
        name = PLAIN_GROUP if inbox is None else group
        stream = Stream(
            self._bus,
            self._outlet,
            topic,
            name,
            echoes=self._echoes,
            begins_at_end=self._begins_at_end,
            tell=self._tell,
            gone=partial(self._forget, topic),
        )
        self._streams[key] = stream
        stream.wait_for(awaited)
        stream.join(group, client, inbox)
        stream.open(partitions)

    def _forget(self, topic: str, group: str) -> None:
        """Wait for a plain group no more."""
        self._audience.leave(topic, group)
        self._run(self._forget_in_store(topic, group))

    async def _forget_in_store(self, topic: str, group: str) -> None:
        try:
            await self._audience.forget(topic, group)
        except BusError as error:
            _log.debug("a broker that starts again will wait for the group %s of %s: %s", group, topic, error)

    async def _ready(self, client: str, said: Mapping[str, Any]) -> None:
        topic, group = _text(said, "topic"), _text(said, "group")
        for stream in self._streams_of(topic, group):
            stream.confirm(group, client, said.get("generation"), _numbers(said.get("partitions")))

    async def _acknowledged(self, client: str, said: Mapping[str, Any]) -> None:
        stream = self._streams.get((_text(said, "topic"), _text(said, "group")))
        if stream is not None:
            stream.acknowledge(client, int(said["partition"]), int(said["sequence"]))

    async def _left(self, client: str) -> None:
        for inbox in [inbox for inbox, owner in self._inboxes.items() if owner == client]:
            del self._inboxes[inbox]
        for key, stream in list(self._streams.items()):
            emptied = stream.leave(client)
            if key[1] is None and not self._is_closing:
                for group in emptied:
                    self._forget(stream.topic, group)
            if not stream.teams:
                # Nobody is there: positions are in the store, and nothing is kept in memory for who may never come.
                del self._streams[key]
                self._closing.add(closing := asyncio.create_task(stream.close()))
                closing.add_done_callback(self._closing.discard)

    def _streams_of(self, topic: str, group: str) -> list[Stream]:
        return [self._streams[key] for key in ((topic, group), (topic, None)) if key in self._streams]

    def _tell(self, team: Team, member: Member) -> None:
        said: dict[str, Any] = {"topic": team.topic, "group": team.group, "generation": member.generation}
        label = self._streams[team.topic, None].label if member.inbox is None else int
        said["partitions"] = [label(number) for number in member.partitions]
        self._run(self._management.tell(member.client, "rebalance", said))

    def _subscribed(self, room: str) -> None:
        client = self._inboxes.get(room)
        if client is not None:
            # Its connection is new, and what was on the way through an older one is lost.
            for stream in self._streams.values():
                stream.send_again(client)

    async def _flush_always(self) -> None:
        while True:
            await asyncio.sleep(self._flush_interval)
            for stream in self._streams.values():
                try:
                    stream.flush()
                except Exception:
                    # What harms one topic must not stop the others.
                    _log.exception("%s could not be sent", stream.topic)


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} is missing.")
    return value


def _numbers(partitions: object) -> list[int]:
    return [int(number) for number in partitions] if isinstance(partitions, list) else []


def _check_reach(addresses: Sequence[str], secret: str) -> None:
    reached = [address for address in addresses if not is_on_this_machine(address)]
    if reached and not secret:
        raise InvalidArgument(
            f"Other machines can reach {', '.join(reached)}. Give a --secret, or set ONEBUS_SECRET, or use 127.0.0.1."
        )
