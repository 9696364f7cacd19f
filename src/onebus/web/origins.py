"""Which pages may talk to this server: those that come from it, and those of the origins that it was told of."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from onebus.web.request import Request

ALLOWED_HEADERS: Final = (
    "Content-Type, Authorization, Dont-Chunk, X-SILENCE-LOGGER, X-Shared-Session-Key, X-Requested-With, Last-Event-ID"
)
REMEMBERED_SECONDS: Final = 7200
"""How long a browser need not ask again whether it may."""


class Origins:
    """The origins whose pages may talk to a server."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)

    def allow(self, request: Request) -> bool:
        """Return whether a request comes from no page, from a page of this server, or from one that is allowed."""
        if b"origin" not in request.raw_headers:
            return True
        origin = request.headers["origin"].lower()
        if not origin or self._is_listed(origin):
            return True
        return urlsplit(origin).netloc == request.headers.get("host", "").lower()

    def headers(self, request: Request) -> dict[str, str]:
        """Return the headers that let a page of another origin read the answer."""
        origin = request.headers.get("origin", "") if self._allowed else ""
        if not origin:
            return {}
        if not self._is_listed(origin.lower()):
            return {"vary": "origin"}
        headers = {"access-control-expose-headers": "retry-after", "vary": "origin"}
        if origin.lower() in self._allowed:
            headers |= {"access-control-allow-origin": origin, "access-control-allow-credentials": "true"}
        else:
            # Whoever is let in with everybody else comes without cookies and passwords.
            headers["access-control-allow-origin"] = "*"
        if request.method == "OPTIONS":
            headers["access-control-allow-methods"] = "GET, POST, OPTIONS"
            headers["access-control-allow-headers"] = request.headers.get(
                "access-control-request-headers", ALLOWED_HEADERS
            )
            headers["access-control-max-age"] = str(REMEMBERED_SECONDS)
        return headers

    def _is_listed(self, origin: str) -> bool:
        return "*" in self._allowed or origin in self._allowed
