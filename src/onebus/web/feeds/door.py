"""The door for feeds: everything below ``message-bus/``."""

from collections.abc import Mapping
from typing import Final

from onebus.bus import Bus
from onebus.errors import BusError
from onebus.web.answers import Answer, error, failure, json
from onebus.web.asgi import Send
from onebus.web.door import Door
from onebus.web.feeds.broadcast import broadcast
from onebus.web.feeds.events import EventStream
from onebus.web.feeds.held import Held, TooManyClients
from onebus.web.feeds.poll import Poll
from onebus.web.feeds.reception import ChannelDenied, Reception, outcome
from onebus.web.feeds.settings import FeedSettings
from onebus.web.feeds.socket import Socket
from onebus.web.origins import Origins
from onebus.web.request import Request
from onebus.web.traffic import Traffic

RETRY_AFTER_SECONDS: Final = 5
NO_CACHE: Final[Mapping[str, str]] = {
    "cache-control": "must-revalidate, private, max-age=0",
    "pragma": "no-cache",
    "expires": "0",
}


class OriginDenied(BusError):
    """Pages of that origin may not do this."""

    code = "origin_denied"


class FeedDoor(Door):
    """Serves the feeds of a bus to polls, streams, server-sent events and websockets."""

    def __init__(self, bus: Bus, settings: FeedSettings | None = None) -> None:
        self._bus = bus
        self._settings = settings or FeedSettings()
        self._prefix = f"{self._settings.base_route}message-bus/"
        self._origins = Origins(self._settings.origins)
        self._reception = Reception(bus, self._settings)

    @property
    def held(self) -> Held:
        """Who is being held."""
        return self._reception.held

    @property
    def traffic(self) -> Traffic:
        """What was sent."""
        return self._reception.traffic

    def owns(self, path: str) -> bool:
        return path.startswith(self._prefix)

    async def close(self) -> None:
        self._reception.close()

    async def serve(self, request: Request, send: Send) -> Answer | None:
        client_id, _, rest = request.path[len(self._prefix) :].partition("/")
        if not client_id:
            return Answer(404, "", b"not found")
        is_plain = self._settings.extra_response_headers_lookup is None and b"origin" not in request.raw_headers
        headers = NO_CACHE if is_plain else await self._headers(request)
        if request.method == "OPTIONS":
            return Answer(200, "text/plain; charset=utf-8", b"OK", headers)
        if client_id == "broadcast" and self._settings.allow_broadcast:
            self._check_origin(request)
            content_type, body = await broadcast(self._bus, request, await self._reception.site(request))
            return Answer(200, content_type, body, headers)
        if client_id == "_diagnostics":
            return await self._diagnose(request)
        if request.scope["type"] == "websocket":
            self._check_origin(request)
            await Socket(self._reception, request, client_id).serve(send)
            return None
        if rest == "sse":
            await EventStream(self._reception, request, client_id, headers).serve(send)
            return None
        return await Poll(self._reception, request, client_id, headers).serve(send)

    async def _headers(self, request: Request) -> Mapping[str, str]:
        extra = await self._reception.extra_headers(request)
        return {**NO_CACHE, **self._origins.headers(request), **extra}

    async def answer_to(self, request: Request, problem: Exception) -> Answer:
        if self._settings.on_middleware_error is not None:
            chosen = await outcome(self._settings.on_middleware_error(request, problem))
            if chosen is not None:
                return chosen
        headers = self._origins.headers(request)
        match problem:
            case TooManyClients():
                headers["retry-after"] = str(RETRY_AFTER_SECONDS)
                return error(429, problem.code, str(problem), headers=headers)
            case ChannelDenied() | OriginDenied():
                return error(403, problem.code, str(problem), headers=headers)
            case BusError():
                return failure(problem, headers=headers)
        raise problem

    def _check_origin(self, request: Request) -> None:
        """Refuse what a page of another origin could do in the name of whoever looks at it."""
        if not self._origins.allow(request):
            raise OriginDenied(f"Pages of {request.headers['origin']} may not do this here; see `origins`.")

    async def _diagnose(self, request: Request) -> Answer:
        if not await self._reception.is_admin(request):
            return error(403, "not_allowed", "Only admins may see this; see `is_admin_lookup`.")
        clients = [
            {
                "client_id": listener.visitor.client_id,
                "user_id": listener.visitor.user_id,
                "site_id": listener.visitor.site_id,
                "channels": {channel.name: position for channel, position in listener.positions.items()},
            }
            for listener in self.held.listeners()
        ]
        return json({"held": self.held.by_transport(), "clients": clients})
