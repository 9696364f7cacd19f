"""Clients of the queues of a server, for blocking code."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import httpx

from onebus.http import consumer
from onebus.http.connection import DEFAULT_URL, headers_with, read_answer, request_for, unavailable
from onebus.http.exchange import Exchange, words_for
from onebus.http.leases import Leases
from onebus.http.message import HttpMessage

T = TypeVar("T")


class Connection:
    """Connections to one server. Use it in ``with``, or `close` it."""

    def __init__(self, url: str = DEFAULT_URL, *, secret: str = "") -> None:
        self._client = httpx.Client(base_url=url, headers=headers_with(secret))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. Closing twice does nothing."""
        self._client.close()

    def ask(self, exchange: Exchange[T]) -> T:
        """Ask the server, as the connection that is awaited does."""
        try:
            response = self._client.send(request_for(exchange, self._client))
        except httpx.TransportError as error:
            raise unavailable(self._client, error) from error
        return read_answer(exchange, response)


class Producer(Connection):
    """Adds messages to a queue of a server: to the one without a name, or to ``queue``."""

    def __init__(self, url: str = DEFAULT_URL, *, queue: str | None = None, secret: str = "") -> None:
        super().__init__(url, secret=secret)
        self._words = words_for(queue)

    def add_new_message(self, payload: Any) -> int:
        """Add a message and return its id once it is stored; see `onebus.http.Producer.add_new_message`."""
        return self.ask(self._words.push(payload))


class Consumer(Connection):
    """Takes messages out of a queue of a server: the one without a name, or ``queue``."""

    def __init__(self, url: str = DEFAULT_URL, *, queue: str | None = None, secret: str = "") -> None:
        super().__init__(url, secret=secret)
        self._url, self._queue, self._secret = url, queue, secret
        self._words = words_for(queue)
        self._leases = Leases()

    def get_next_message(self, *, timeout: float | None = None, wait: float = 0.0) -> HttpMessage | None:
        """Take the next message, or return None if there is none; see `onebus.http.Consumer.get_next_message`."""
        message = self.ask(self._words.next(timeout, wait))
        if message is not None:
            self._leases.remember(message)
        return message

    def notify_processed(self, message_id: int) -> bool:
        """Report a message as processed, and return whether it counts."""
        lease = self._leases.of(message_id)
        if lease is None and self._queue is not None:
            return False
        return self.ask(self._words.done(message_id, lease or ""))

    def work(self, handler: Callable[[HttpMessage], Any], *, concurrency: int = 1, **options: float) -> None:
        """Handle messages in threads, ``concurrency`` of them at a time, until Ctrl-C.

        Takes the options of `onebus.http.Consumer.work`. A handler that runs when this ends is waited for.
        """

        async def handle(message: HttpMessage) -> None:
            await asyncio.to_thread(handler, message)

        async def work() -> None:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(concurrency, "onebus-handler"))
            async with consumer.Consumer(self._url, queue=self._queue, secret=self._secret) as worker:
                await worker.work(handle, concurrency=concurrency, **options)

        asyncio.run(work())
