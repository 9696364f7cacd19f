"""Websockets: a client that says what it follows, and changes its mind, over one connection."""

import asyncio
from collections import deque
from typing import Final

import msgspec
from msgspec import Struct

from onebus.errors import InvalidArgument, Overloaded
from onebus.objects.feeds.names import channel_name
from onebus.web.asgi import Send
from onebus.web.feeds.attendance import READ_SECONDS
from onebus.web.feeds.findings import DENIED, Findings
from onebus.web.feeds.listener import Listener
from onebus.web.feeds.reception import ChannelDenied, Reception
from onebus.web.feeds.wishes import EPOCH, check_count, wishes_from
from onebus.web.request import Request

PROTOCOL: Final = "onebus"
GOING_AWAY: Final = 1001
MAX_COMMANDS: Final = 100
"""How much a client may say before it is answered."""


class Command(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client says."""

    channels: dict[str, int | str | None] | None = None
    """Channels to follow from now on, and the id that was read last in each; none at all asks for a sign of life."""
    epoch: str = ""
    """The life of all feeds that the client knows."""
    leave: list[str] = []
    """Channels to follow no more."""


_decoder = msgspec.json.Decoder(Command)


class Socket:
    """The websocket of one client."""

    def __init__(self, reception: Reception, request: Request, client_id: str) -> None:
        self._reception = reception
        self._request = request
        self._client_id = client_id
        self._commands: deque[Command] = deque()
        self._is_open = True

    async def serve(self, send: Send) -> None:
        visitor = await self._reception.visitor(self._request, self._client_id)
        listener = self._reception.listener(visitor)
        async with self._reception.hold(listener, "websocket"):
            await self._request.receive()
            accepted = PROTOCOL if PROTOCOL in self._request.scope.get("subprotocols", ()) else None
            await send({"type": "websocket.accept", "subprotocol": accepted})
            hearing = asyncio.create_task(self._hear(listener), name=f"onebus-websocket {self._client_id}")
            hearing.add_done_callback(lambda task: task.cancelled() or task.exception())
            try:
                await self._talk(listener, hearing, send)
            finally:
                hearing.cancel()

    async def _talk(self, listener: Listener, hearing: "asyncio.Task[None]", send: Send) -> None:
        while self._is_open and not listener.is_over:
            if hearing.done():
                hearing.result()
            while self._commands:
                findings = await self._obey(listener, self._commands.popleft())
                if findings is not None:
                    await self._write(findings, send)
            findings = await listener.next()
            if findings:
                await self._write(findings, send)
        if self._is_open:
            await send({"type": "websocket.close", "code": GOING_AWAY, "reason": "Come back."})

    async def _write(self, findings: Findings, send: Send) -> None:
        array = findings.array
        try:
            async with asyncio.timeout(READ_SECONDS):
                await send({"type": "websocket.send", "text": array.decode()})
        except TimeoutError:
            raise Overloaded(f"You did not read for {READ_SECONDS:g} s.") from None
        self._reception.traffic.sent("websocket", findings.count, len(array))

    async def _obey(self, listener: Listener, command: Command) -> Findings | None:
        site_id = listener.visitor.site_id
        listener.leave(channel_name(name, site_id) for name in command.leave)
        if not command.channels:
            return None if command.channels is None else Findings()
        followed = {channel.name for channel in listener.positions}
        check_count(len(followed | command.channels.keys()), self._reception.settings.max_channels)
        wishes = wishes_from({**command.channels, EPOCH: command.epoch})
        try:
            return await self._reception.begin(listener, wishes, is_live=True)
        except ChannelDenied as denied:
            findings = Findings()
            findings.tell(DENIED, denied.channels)
            return findings

    async def _hear(self, listener: Listener) -> None:
        """Take what the client says, and wake whoever talks to it."""
        try:
            while self._is_open:
                message = await self._request.receive()
                if message["type"] == "websocket.disconnect":
                    self._is_open = False
                else:
                    self._commands.append(_command(message.get("text") or message.get("bytes") or ""))
                    if len(self._commands) > MAX_COMMANDS:
                        raise InvalidArgument(f"Wait for an answer before you say more than {MAX_COMMANDS} things.")
                listener.call()
        finally:
            listener.call()


def _command(said: str | bytes) -> Command:
    try:
        return _decoder.decode(said)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidArgument(f"That is not understood: {error}.") from None
