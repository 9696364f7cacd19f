"""The messages of one channel that arrived together, written once for all clients that get the same ones."""

from collections.abc import Sequence

from onebus.objects.feeds.message import EVERYBODY, FeedMessage
from onebus.web.feeds.findings import Findings
from onebus.web.feeds.parcels import Parcel, piece
from onebus.web.feeds.visitor import Visitor


class Delivery:
    """Some messages, for any number of clients."""

    __slots__ = ("_findings", "_is_open", "_messages", "_pieces", "first_id", "last_id", "size")

    def __init__(self, messages: Sequence[FeedMessage]) -> None:
        self._messages = messages
        self._is_open = all(message.audience is EVERYBODY for message in messages)
        self._pieces: list[bytes] | None = None
        self._findings: dict[tuple[int, ...] | None, Findings] = {}
        self.first_id = messages[0].message_id
        self.last_id = messages[-1].message_id
        self.size = sum(len(message.value) for message in messages)

    def findings(self, visitor: Visitor, after: int) -> Findings | None:
        """Return those messages that follow an id and that a visitor may see. Others get the same: do not change it."""
        if self._is_open and after < self.first_id and visitor.sees_all(self._messages[0].channel):
            return self._findings.get(None) or self._written(None)
        seen = enumerate(self._messages)
        chosen = tuple(index for index, one in seen if one.message_id > after and visitor.sees(one))
        return (self._findings.get(chosen) or self._written(chosen)) if chosen else None

    def _written(self, chosen: tuple[int, ...] | None) -> Findings:
        if self._pieces is None:
            self._pieces = [piece(message) for message in self._messages]
        if chosen is None:
            parcel = Parcel(self._messages, self._pieces)
        else:
            parcel = Parcel([self._messages[i] for i in chosen], [self._pieces[i] for i in chosen])
        findings = self._findings[chosen] = Findings([parcel])
        return findings
