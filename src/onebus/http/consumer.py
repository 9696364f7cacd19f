"""Takes messages out of a queue over HTTP."""

from collections.abc import Awaitable, Callable
from typing import Any

from onebus.http.connection import DEFAULT_URL, Connection
from onebus.http.exchange import DEFAULT_QUEUE, WordsOfMany, words_for
from onebus.http.leases import Leases
from onebus.http.message import HttpMessage
from onebus.http.worker import Worker, WorkSettings


class Consumer(Connection):
    """Takes messages out of a queue of a server: the one without a name, or ``queue``."""

    def __init__(self, url: str = DEFAULT_URL, *, queue: str | None = None, secret: str = "") -> None:
        super().__init__(url, secret=secret)
        self._queue = queue
        self._words = words_for(queue)
        self._leases = Leases()

    async def get_next_message(self, *, timeout: float | None = None, wait: float = 0.0) -> HttpMessage | None:
        """Take the next message, or return None if there is none.

        Report it with `notify_processed` within ``timeout`` seconds, by default what the server was told; then somebody
        else gets it. With ``wait`` a queue with a name is waited for, for so many seconds.

        Raises:
            ServerUnavailable, RequestFailed
        """
        message = await self.ask(self._words.next(timeout, wait))
        if message is not None:
            self._leases.remember(message)
        return message

    async def notify_processed(self, message_id: int) -> bool:
        """Report a message as processed, and return whether it counts: False means that the time was up.

        May be repeated when the server did not answer.

        Raises:
            ServerUnavailable, RequestFailed
        """
        lease = self._leases.of(message_id)
        if lease is None and self._queue is not None:
            return False
        return await self.ask(self._words.done(message_id, lease or ""))

    async def work(
        self,
        handler: Callable[[HttpMessage], Awaitable[Any]],
        *,
        concurrency: int = 1,
        timeout: float = 30.0,
        retry_delay: float = 1.0,
        grace: float = 10.0,
    ) -> None:
        """Handle messages as they come, ``concurrency`` of them at a time, until this is cancelled.

        A message is done when its handler returns. Its lease of ``timeout`` seconds is extended as long as the handler
        runs. If the handler raises, the message is given back and comes again after ``retry_delay`` seconds, until the
        server has enough of it. A server that is away is waited for.

        Cancellation: running handlers have ``grace`` seconds to end; what is not done then is given back.
        """
        words = WordsOfMany(self._queue or DEFAULT_QUEUE)
        settings = WorkSettings(concurrency=concurrency, timeout=timeout, retry_delay=retry_delay, grace=grace)
        await Worker(self, words, handler, settings).run()
