"""A message of a feed, and whom it is for."""

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onebus.errors import InvalidArgument
from onebus.log.batch import Entry, Kind, decode
from onebus.log.stored import StoredBatch
from onebus.objects.feeds.names import GLOBAL_PREFIX, ChannelName, channel_of_log
from onebus.payload import pack_json, unpack

_USERS, _GROUPS, _CLIENTS, _ENDS = "u", "g", "c", "e"

Ids = Sequence[int | str]
"""Users, groups or clients, as the program that publishes knows them. 1 and "1" are two of them."""


class Audience(Struct, frozen=True):
    """Whom a message is for; None is everybody."""

    user_ids: Ids | None = None
    group_ids: Ids | None = None
    client_ids: Ids | None = None

    def __post_init__(self) -> None:
        for name in ("user_ids", "group_ids", "client_ids"):
            ids = getattr(self, name)
            if ids is not None and (isinstance(ids, str) or not ids):
                raise InvalidArgument(f"{name} must be None, for everybody, or name at least one, but is {ids!r}.")

    def includes(self, user_id: int | str | None, group_ids: Collection[int | str], client_id: str) -> bool:
        """Return whether somebody may see the message."""
        if self.client_ids is not None and client_id not in self.client_ids:
            return False
        if self.user_ids is None and self.group_ids is None:
            return True
        if self.user_ids is not None and user_id is not None and user_id in self.user_ids:
            return True
        return self.group_ids is not None and any(group in self.group_ids for group in group_ids)


EVERYBODY = Audience()


def audience_of(
    channel: str, user_ids: Ids | None = None, group_ids: Ids | None = None, client_ids: Ids | None = None
) -> Audience:
    """Return whom a message on a channel is for.

    Raises:
        InvalidArgument: nobody could see it, or it is for users or groups of all sites.
    """
    if user_ids is group_ids is client_ids is None:
        return EVERYBODY
    if channel.startswith(GLOBAL_PREFIX) and (user_ids is not None or group_ids is not None):
        raise InvalidArgument(f"{channel!r} is for all sites, whose users and groups are not the same people.")
    return Audience(user_ids, group_ids, client_ids)


class FeedMessage(Struct, frozen=True, gc=False):
    """One message of a channel.

    ``message_id`` counts the messages of its channel, ``global_id`` those of all channels; neither ever goes back.
    """

    channel: str
    message_id: int
    global_id: int
    value: bytes
    """The data as JSON."""
    site_id: str | None = None
    audience: Audience = EVERYBODY
    time_ms: int = 0
    ends_ms: int | None = None
    """When it is to be forgotten, if it was published with an age of its own."""

    @property
    def data(self) -> Any:
        return unpack(self.value, Kind.JSON)

    @property
    def user_ids(self) -> Ids | None:
        return self.audience.user_ids

    @property
    def group_ids(self) -> Ids | None:
        return self.audience.group_ids

    @property
    def client_ids(self) -> Ids | None:
        return self.audience.client_ids


def entry_of(data: Any, audience: Audience, ends_ms: int | None) -> Entry:
    """Return what the log keeps of a message.

    Raises:
        NotSerializable: the data cannot be written as JSON.
    """
    if audience is EVERYBODY and ends_ms is None:
        return Entry(pack_json(data), Kind.JSON)
    headers: dict[str, str] = {}
    for name, ids in ((_USERS, audience.user_ids), (_GROUPS, audience.group_ids), (_CLIENTS, audience.client_ids)):
        if ids is not None:
            headers[name] = pack_json(list(ids)).decode()
    if ends_ms is not None:
        headers[_ENDS] = str(ends_ms)
    return Entry(pack_json(data), Kind.JSON, None, headers)


def messages_of_channel(channel: ChannelName, stored: StoredBatch) -> list[FeedMessage]:
    """Return the messages of a batch in the log of a channel."""
    first_global_id = stored.twin.first_id if stored.twin else 0
    return _messages(channel, stored.first_id, first_global_id, stored.blob)


def messages_of_all(stored: StoredBatch) -> list[FeedMessage]:
    """Return the messages of a batch in the log of all channels."""
    if stored.twin is None:
        return []
    return _messages(channel_of_log(stored.twin.log), stored.twin.first_id, stored.first_id, stored.blob)


def _messages(channel: ChannelName, message_id: int, global_id: int, blob: bytes) -> list[FeedMessage]:
    batch = decode(blob)
    name, site_id = channel.name, channel.site_id
    if batch.is_plain:
        ids = zip(count(message_id), count(global_id), batch.payloads(), strict=False)
        time_ms = batch.time_ms
        return [FeedMessage(name, mine, its, value, site_id, EVERYBODY, time_ms) for mine, its, value in ids]
    return [
        _addressed(FeedMessage(name, mine, its, entry.value, site_id, time_ms=entry.time_ms or 0), entry.headers)
        for mine, its, entry in zip(count(message_id), count(global_id), batch.entries(), strict=False)
    ]


def _addressed(message: FeedMessage, headers: Mapping[str, str] | None) -> FeedMessage:
    if not headers:
        return message
    ends = headers.get(_ENDS)
    return replace(message, audience=_audience(headers), ends_ms=None if ends is None else int(ends))


def _audience(headers: Mapping[str, str]) -> Audience:
    lists = [headers.get(name) for name in (_USERS, _GROUPS, _CLIENTS)]
    if not any(lists):
        return EVERYBODY
    return Audience(*(None if text is None else msgspec.json.decode(text) for text in lists))
