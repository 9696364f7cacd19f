"""How a job that goes on for ever is told to stop, and does so between two batches."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS: Final = 0.1


class Stop:
    """Tells a job to stop after the current batch. Any thread, or a signal handler, may set it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most, and return whether the job has to stop."""
        # A lock that is waited for in one piece would keep signals from the main thread.
        end = time.monotonic() + seconds
        while not self.is_set and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        return self.is_set


def newest_batch(query: "StreamingQuery") -> tuple[int, str]:
    """Return which batch a query has told of last, and when that began; before the first one, -1."""
    progress = query.lastProgress
    return (-1, "") if progress is None else (progress["batchId"], progress["timestamp"])


def run_query(query: "StreamingQuery", stop: Stop, on_look: Callable[["StreamingQuery"], object] | None = None) -> None:
    """Wait until a streaming query ends, or end it after the batch that it is working on when told to stop.

    ``on_look`` is called several times a second, and may look how far the query has come.

    Raises:
        StreamingQueryException: the query has failed.
    """
    asked: tuple[int, str] | None = None
    try:
        while query.isActive:
            if stop.is_set:
                asked = asked or newest_batch(query)
                # A busy stream is never seen between two batches, but seen to have gone on to another one.
                if not query.status["isTriggerActive"] or newest_batch(query) != asked:
                    break
            if on_look is not None:
                on_look(query)
            time.sleep(_LOOK_SECONDS)
        if on_look is not None:
            on_look(query)
    finally:
        query.stop()
    query.awaitTermination()
