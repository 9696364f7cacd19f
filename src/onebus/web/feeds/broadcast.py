"""Publishing over HTTP, where that is allowed."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import msgspec
from msgspec import Struct

from onebus.bus import Bus
from onebus.errors import InvalidArgument
from onebus.objects.feeds.message import Ids, audience_of
from onebus.objects.feeds.names import channel_name
from onebus.payload import pack_json
from onebus.web.feeds.wishes import read_form
from onebus.web.request import Request

JSON: Final = "application/json"
JSON_TYPE: Final = JSON.encode()
MAX_MESSAGES: Final = 10_000


class Announcement(Struct, frozen=True, forbid_unknown_fields=True):
    """A message to publish."""

    channel: str
    data: Any = None
    user_ids: Ids | None = None
    group_ids: Ids | None = None
    client_ids: Ids | None = None
    site_id: str | None = None


_decoder = msgspec.json.Decoder(Announcement | list[Announcement])


async def broadcast(bus: Bus, request: Request, site_id: str | None) -> tuple[str, bytes]:
    """Publish what a request carries: a form with ``channel`` and ``data``, or one message or several as JSON.

    Returns what to answer, and its content type, once they are stored: ``sent`` to a form, the ids of the messages
    to JSON. ``site_id`` is the site of messages that name none.

    Raises:
        InvalidArgument: it cannot be understood; nothing is published.
    """
    body = await request.body()
    if JSON_TYPE not in request.raw_headers.get(b"content-type", b""):
        fields = {**request.parameters, **read_form(body.decode("utf-8", "replace"))}
        if "channel" not in fields:
            raise InvalidArgument("Say on which channel to publish: channel=/chat&data=hello")
        await bus.publish(fields["channel"], fields.get("data", ""), site_id=site_id)
        return "text/html", b"sent"
    announced = _read(body)
    if isinstance(announced, Announcement):
        with bus.feeds.lull:
            return JSON, b'{"id":%d}' % await _publish(bus, announced, site_id)
    if len(announced) > MAX_MESSAGES:
        raise InvalidArgument(f"Publish at most {MAX_MESSAGES} messages at once.")
    for one in announced:
        _check(bus, one, site_id)
    return JSON, msgspec.json.encode({"ids": await asyncio.gather(*(_publish(bus, one, site_id) for one in announced))})


def _read(body: bytes) -> Announcement | list[Announcement]:
    try:
        read: Announcement | list[Announcement] = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidArgument(f"That is not a message to publish: {error}.") from None
    return read


def _check(bus: Bus, announced: Announcement, site_id: str | None) -> None:
    """Raise what publishing would raise, before the first of several messages is published."""
    channel_name(announced.channel, announced.site_id or site_id)
    audience_of(announced.channel, announced.user_ids, announced.group_ids, announced.client_ids)
    bus.link.limits.check(len(pack_json(announced.data)))


def _publish(bus: Bus, announced: Announcement, site_id: str | None) -> Awaitable[int]:
    return bus.feeds.publish(
        announced.channel,
        announced.data,
        user_ids=announced.user_ids,
        group_ids=announced.group_ids,
        client_ids=announced.client_ids,
        site_id=announced.site_id or site_id,
    )
