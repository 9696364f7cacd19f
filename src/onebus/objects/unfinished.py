"""Which messages of a log are still there: batches stay until all their messages are done, so reading alone shows more.

What is done after this was asked may still be shown; what is appended after it is new, and counts as there.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Self

from onebus.stores.base import Span, Store


class Unfinished:
    """The unfinished ids of a log at one moment."""

    def __init__(self, spans: Iterable[Span] = (), last_id: int = 0) -> None:
        self._spans = list(spans)
        self._firsts = [span.first for span in self._spans]
        self.count = sum(span.last - span.first + 1 for span in self._spans)
        self.last_id = max(last_id, self._spans[-1].last if self._spans else 0)
        """The newest id of the log at that moment; whether later ones are unfinished is not known here."""

    @classmethod
    async def of(cls, store: Store, log: str, *, claimable_only: bool = False) -> Self:
        """Ask a store for the unfinished ids of a log, or only for those that nobody holds."""
        # In this order: what is appended in between counts as new, and not as done.
        stat = await store.stat(log)
        spans = await store.unfinished(log) if stat is not None else ()
        wanted = (span for span in spans if not (claimable_only and span.is_held))
        return cls(wanted, stat.last_id if stat is not None else 0)

    def __contains__(self, id_: int) -> bool:
        index = bisect_right(self._firsts, id_) - 1
        return index >= 0 and id_ <= self._spans[index].last

    def position(self, index: int) -> int:
        """Return the id before the one at `index`, which counts from the end if it is negative.

        The one behind the last of them is the next that will be appended.
        """
        if index < 0:
            index = max(self.count + index, 0)
        for span in self._spans:
            size = span.last - span.first + 1
            if index < size:
                return span.first + index - 1
            index -= size
        return self.last_id
