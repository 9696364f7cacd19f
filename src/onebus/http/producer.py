"""Adds messages to a queue over HTTP."""

from typing import Any

from onebus.http.connection import DEFAULT_URL, Connection
from onebus.http.exchange import words_for


class Producer(Connection):
    """Adds messages to a queue of a server: to the one without a name, or to ``queue``."""

    def __init__(self, url: str = DEFAULT_URL, *, queue: str | None = None, secret: str = "") -> None:
        super().__init__(url, secret=secret)
        self._words = words_for(queue)

    async def add_new_message(self, payload: Any) -> int:
        """Add a message and return its id once it is stored.

        The queue without a name takes text, and numbers as text; a queue with a name takes whatever JSON can say.

        Raises:
            ServerUnavailable: the server does not answer; the message may have been added all the same.
            RequestFailed: the server refuses the message.
        """
        return await self.ask(self._words.push(payload))
