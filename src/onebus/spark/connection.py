"""How a Python program that Spark has started reaches a store.

Spark keeps such programs and gives them one piece of work after the other. A store that was opened stays open for the
next piece: it lives in an event loop that has a thread of its own, so that a reader can fetch what it needs next
while it works on what it has.
"""

import asyncio
import gc
import os
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from onebus.heap import keep_freed_memory
from onebus.stores import Store, create_store

T = TypeVar("T")

Urls = tuple[str, ...]


class Connection:
    """An open store and the event loop in which it lives."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="onebus-spark", daemon=True).start()
        try:
            self.store = self.run(_open(urls))
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin some work with the store, and return what will hold its outcome."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work with the store, and return its outcome."""
        return self.begin(work).result()


_connections: dict[tuple[int, Urls], Connection] = {}
_connecting = threading.Lock()


def connect(urls: Urls) -> Connection:
    """Return the connection of this process to a store. A process that was forked gets one of its own."""
    key = os.getpid(), urls
    with _connecting:
        connection = _connections.get(key)
        if connection is None:
            connection = _connections[key] = Connection(urls)
            keep_freed_memory()
            # Spark collects garbage after each piece of work, and what was imported until now never is any.
            gc.freeze()
        return connection


async def _open(urls: Sequence[str]) -> Store:
    store = create_store(urls[0] if len(urls) == 1 else urls)
    await store.open()
    return store
