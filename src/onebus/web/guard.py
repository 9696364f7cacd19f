"""Who may talk to a server at all: whoever knows its secret, or, where there is none, this machine.

Without a secret the server listens to this machine only. But a browser on it shows pages from anywhere, and these can
make it send requests here: so a request has to name this machine as its host, which a page cannot forge, and what
changes something must not come from a page of another origin.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from onebus.web.answers import Answer, error
from onebus.web.origins import Origins
from onebus.web.request import Request

OPEN_PATHS: Final = ("/healthz", "/onebus.js", "/onebus/")
"""What anybody may read: that the server is well, and the code of its client."""
BEARER_PROTOCOL: Final = "bearer."

_HARMLESS = ("GET", "HEAD", "OPTIONS")
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """Refuses requests of those who may not make them."""

    def __init__(self, *, secret: str = "", origins: Sequence[str] = ()) -> None:
        self._secret = secret.encode()
        self._origins = Origins(origins)

    def refusal(self, request: Request) -> Answer | None:
        """Return what to answer to a request that must not pass."""
        if request.path.startswith(OPEN_PATHS) and request.method in _HARMLESS:
            return None
        if b"origin" in request.raw_headers and not self._may_come_from_there(request):
            text = f"Pages of {request.headers['origin']} may not change anything here. Allow that with --origin."
            return error(403, "origin_denied", text)
        if not self._secret:
            names_us = _is_this_machine(request.raw_headers.get(b"host", b""))
            return None if names_us else error(403, "host_denied", _HOST_DENIED)
        if request.method == "OPTIONS" or self._knows_secret(request):
            return None
        challenge = {"www-authenticate": 'Basic realm="onebus", charset="UTF-8"'}
        return error(401, "secret_needed", "Give the secret: Authorization: Bearer SECRET", headers=challenge)

    def _may_come_from_there(self, request: Request) -> bool:
        return request.method in _HARMLESS or self._origins.allow(request)

    def _knows_secret(self, request: Request) -> bool:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "bearer":
                return self._is_secret(value.strip().encode())
            case "basic":
                return self._is_secret(_decoded(value).partition(b":")[2])
        protocols: Sequence[str] = request.scope.get("subprotocols", ())
        given = (name.removeprefix(BEARER_PROTOCOL) for name in protocols if name.startswith(BEARER_PROTOCOL))
        return any(self._is_secret(_decoded(one)) for one in given)

    def _is_secret(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self._secret)


_HOST_DENIED = (
    "This server has no secret, so it answers to requests for this machine only. "
    "Start it with --secret to reach it by another name."
)


@lru_cache(maxsize=1000)
def _is_this_machine(host: bytes) -> bool:
    name = host.decode("latin-1").lower()
    name = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
    return name in _THIS_MACHINE


def _decoded(value: str) -> bytes:
    try:
        padded = value.strip() + "=" * (-len(value.strip()) % 4)
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return b""
