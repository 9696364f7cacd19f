"""Polls: answered at once, held until there is something, or streamed."""

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from onebus.web.answers import Answer, raw_headers
from onebus.web.asgi import Send
from onebus.web.feeds.attendance import attended
from onebus.web.feeds.express import AnswerExpress, StreamExpress
from onebus.web.feeds.findings import EMPTY_FRAME, Findings
from onebus.web.feeds.held import TooManyClients
from onebus.web.feeds.listener import Listener
from onebus.web.feeds.reception import Reception
from onebus.web.feeds.wishes import Wishes, wishes_of
from onebus.web.lane import lane_of
from onebus.web.request import Request

JSON: Final = "application/json; charset=utf-8"
"""Exactly so: the oldest clients compare it letter by letter, and ignore the answer otherwise."""


class Poll:
    """One poll of one client."""

    def __init__(self, reception: Reception, request: Request, client_id: str, headers: Mapping[str, str]) -> None:
        settings = reception.settings
        version = request.scope.get("http_version", "1.1")
        self._reception = reception
        self._request = request
        self._client_id = client_id
        self._headers = headers
        self._closing_headers = {**headers, "connection": "close"} if version.startswith("1") else headers
        self._interval = settings.long_polling_interval
        self._is_long = settings.long_polling_enabled and reception.is_on and "dlp=t" not in request.query
        """Whether it is held if there is nothing for it."""
        self._is_stream = (
            self._is_long
            and settings.chunked_encoding_enabled
            and version != "1.0"
            and "dont-chunk" not in request.headers
        )

        self._transport = "streaming" if self._is_stream else "long-polling" if self._is_long else "polling"

    async def serve(self, send: Send) -> Answer | None:
        visitor = await self._reception.visitor(self._request, self._client_id)
        wishes = await wishes_of(self._request, max_channels=self._reception.settings.max_channels)
        listener = self._reception.listener(visitor)
        if self._is_long and self._reception.held.has_room_for(visitor):
            return await self._hold(listener, wishes, send)
        findings = await self._reception.begin(listener, wishes, is_live=False)
        if self._is_long and not findings:
            raise TooManyClients("As many clients are held as may be. Come back later.")
        return self._answer(findings)

    async def _hold(self, listener: Listener, wishes: Wishes, send: Send) -> Answer | None:
        with self._reception.held.only_poll(listener, wishes.sequence) as is_newest:
            if not is_newest:
                return await self._refuse(listener, send)
            async with self._reception.hold(listener, self._transport):
                findings = await self._reception.begin(listener, wishes, is_live=True)
                if findings and not self._is_stream:
                    return self._answer(findings)
                async with attended(self._request, listener, self._interval):
                    if not self._is_stream:
                        return await self._wait(listener)
                    await self._stream(listener, findings, send)
        return None

    def _answer(self, findings: Findings) -> Answer:
        body = findings.array
        self._reception.traffic.sent(self._transport, findings.count, len(body))
        return Answer(200, JSON, body, self._headers)

    def _late_answer(self, findings: Findings) -> Answer:
        return structs.replace(self._answer(findings), headers=self._closing_headers)

    async def _refuse(self, listener: Listener, send: Send) -> Answer | None:
        """End a poll at once because a later one of the same client is held already."""
        listener.end()
        if not self._is_stream:
            return self._answer(Findings())
        await self._stream(listener, Findings(), send)
        return None

    async def _wait(self, listener: Listener) -> Answer | None:
        lane = lane_of(self._request.scope)
        express = None if lane is None else AnswerExpress(lane, self._late_answer, listener.end)
        listener.express = express
        findings = await _something(listener)
        return None if express is not None and express.is_used else self._late_answer(findings)

    async def _stream(self, listener: Listener, findings: Findings, send: Send) -> None:
        headers = {
            "content-type": "text/plain; charset=utf-8",
            # Else some browsers wait for more before they hand over anything.
            "x-content-type-options": "nosniff",
            **self._closing_headers,
        }
        await send({"type": "http.response.start", "status": 200, "headers": raw_headers(headers)})
        traffic = self._reception.traffic
        lane = lane_of(self._request.scope)
        if lane is not None:
            listener.express = StreamExpress(lane, traffic, self._transport)
        while True:
            frame = findings.frame
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            traffic.sent(self._transport, findings.count, len(frame))
            findings = await _something(listener)
            if listener.is_over:
                break
        await send({"type": "http.response.body", "body": EMPTY_FRAME})


async def _something(listener: Listener) -> Findings:
    """Return what comes next for a client, which is nothing only when it is over."""
    findings = await listener.next()
    while not findings and not listener.is_over:
        findings = await listener.next()
    return findings
