"""Sending JSON back, with as little as possible between a queue and the wire."""

from typing import Final

import msgspec

from onebus.web.asgi import Send

_TYPE: Final = (b"content-type", b"application/json")
_FRESH: Final = (b"cache-control", b"no-store")

_encoder = msgspec.json.Encoder()


async def reply(send: Send, content: object, status: int = 200, *, with_body: bool = True) -> None:
    """Answer with JSON that tells how things are now."""
    body = _encoder.encode(content)
    headers = [_TYPE, _FRESH, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if with_body else b""})


async def reply_nothing(send: Send) -> None:
    """Answer that it was done, and that there is nothing to say."""
    await send({"type": "http.response.start", "status": 204, "headers": [_FRESH]})
    await send({"type": "http.response.body", "body": b""})
