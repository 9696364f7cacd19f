"""Who is at the door."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from onebus.objects.feeds.message import EVERYBODY, FeedMessage
from onebus.web.request import Request

_log = logging.getLogger("onebus")


@dataclass(frozen=True, slots=True, eq=False)
class Visitor:
    """A client of the door, and what its lookups found out about it."""

    client_id: str
    request: Request
    user_id: int | str | None = None
    group_ids: Collection[int | str] = ()
    site_id: str | None = None
    filters: Sequence[tuple[str, Callable[[FeedMessage, "Visitor"], bool]]] = field(default=(), repr=False)

    def sees_all(self, channel: str) -> bool:
        """Return whether nothing but its audience can hide a message of a channel."""
        return not self.filters or not any(channel.startswith(prefix) for prefix, _ in self.filters)

    def sees(self, message: FeedMessage) -> bool:
        """Return whether a message is for this visitor."""
        audience = message.audience
        if audience is not EVERYBODY and not audience.includes(self.user_id, self.group_ids, self.client_id):
            return False
        return all(
            self._passes(passes, message) for prefix, passes in self.filters if message.channel.startswith(prefix)
        )

    def _passes(self, passes: Callable[[FeedMessage, "Visitor"], bool], message: FeedMessage) -> bool:
        try:
            return bool(passes(message, self))
        except Exception:
            # What nobody could decide about stays hidden.
            _log.exception("a filter failed for message %s of %s", message.message_id, message.channel)
            return False
