"""The leases of the messages that a consumer took."""

from collections import OrderedDict
from typing import Final

from onebus.http.message import HttpMessage

MAX_REMEMBERED: Final = 10_000


class Leases:
    """Remembers the leases of the last messages, by id."""

    def __init__(self) -> None:
        self._leases: OrderedDict[int, str] = OrderedDict()

    def remember(self, message: HttpMessage) -> None:
        self._leases[message.id] = message.lease
        self._leases.move_to_end(message.id)
        if len(self._leases) > MAX_REMEMBERED:
            self._leases.popitem(last=False)

    def of(self, message_id: int) -> str | None:
        return self._leases.get(message_id)
