"""Server-sent events: what browsers call an event source."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from onebus.web.answers import raw_headers
from onebus.web.asgi import Send
from onebus.web.feeds.attendance import READ_SECONDS, attended
from onebus.web.feeds.findings import STATUS, Findings
from onebus.web.feeds.listener import Listener
from onebus.web.feeds.parcels import notice
from onebus.web.feeds.reception import Reception
from onebus.web.feeds.wishes import EPOCH, Wishes, check_count, read_form, read_json, wishes_from
from onebus.web.request import Request

HEARTBEAT: Final = b":\n\n"


class EventStream:
    """The stream of one client. The id of an event says where all channels stand, to go on from there."""

    def __init__(self, reception: Reception, request: Request, client_id: str, headers: Mapping[str, str]) -> None:
        self._reception = reception
        self._request = request
        self._client_id = client_id
        self._headers = {**headers, "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
        self._reached: dict[str, int | str] = {}

    async def serve(self, send: Send) -> None:
        visitor = await self._reception.visitor(self._request, self._client_id)
        wishes = self._wishes()
        listener = self._reception.listener(visitor)
        async with self._reception.hold(listener, "sse"):
            findings = await self._reception.begin(listener, wishes, is_live=True)
            self._begin(listener, findings)
            async with attended(self._request, listener):
                # Whoever does not read is given up; the web server then closes the connection.
                with suppress(TimeoutError):
                    await self._stream(listener, findings, send)

    def _wishes(self) -> Wishes:
        fields: dict[str, object] = {EPOCH: "", **read_form(self._request.query)}
        reached = self._request.headers.get("last-event-id", "")
        if reached:
            # Browsers send text of all languages in it, as UTF-8.
            fields.update(read_json(reached.encode("latin-1")))
        wishes = wishes_from(fields)
        check_count(len(wishes.channels), self._reception.settings.max_channels)
        return wishes

    def _begin(self, listener: Listener, findings: Findings) -> None:
        """Remember where the client stands before it gets what was found."""
        self._reached = {channel.name: position for channel, position in listener.positions.items()}
        self._reached[EPOCH] = listener.epoch or ""
        for parcel in findings.parcels:
            first = parcel.messages[0]
            self._reached[first.channel] = first.message_id - 1

    async def _stream(self, listener: Listener, findings: Findings, send: Send) -> None:
        patience = self._reception.settings.long_polling_interval
        await send({"type": "http.response.start", "status": 200, "headers": raw_headers(self._headers)})
        body = b"".join(self._events(listener, findings))
        while not listener.is_over:
            async with asyncio.timeout(READ_SECONDS):
                await send({"type": "http.response.body", "body": body, "more_body": True})
            self._reception.traffic.sent("sse", findings.count, len(body))
            findings = await listener.next(patience)
            body = b"".join(self._events(listener, findings)) if findings else HEARTBEAT
        await send({"type": "http.response.body", "body": b""})

    def _events(self, listener: Listener, findings: Findings) -> Iterator[bytes]:
        for piece in findings.before:
            yield b"data: %b\n\n" % piece
        for parcel in findings.parcels:
            for message, piece in zip(parcel.messages, parcel.pieces, strict=True):
                self._reached[message.channel] = message.message_id
                yield b"id: %b\ndata: %b\n\n" % (msgspec.json.encode(self._reached), piece)
        self._reached.update({channel.name: position for channel, position in listener.positions.items()})
        status = b"data: %b\n" % notice(STATUS, findings.status) if findings.status else b""
        yield b"id: %b\n%b\n" % (msgspec.json.encode(self._reached), status)
