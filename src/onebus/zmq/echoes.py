"""What was stored just now, as the JSON in which it goes out: most of it is on its way to consumers a moment later.

To cut a batch into messages, only to put commas between them again, would take longer than to store it.
"""

from collections import OrderedDict
from typing import Final

MAX_ECHOES: Final = 8
"""Batches that are older are cut into messages; each has some 1 MiB."""


class Echoes:
    """Remembers the messages of a few batches as text. A batch is known by being the very same object."""

    def __init__(self) -> None:
        self._arrays: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()

    def keep(self, batch: bytes, array: bytes) -> None:
        """Remember the messages of a batch as one JSON array."""
        # The batch is kept along with it, so that no other one can have its identity.
        self._arrays[id(batch)] = batch, array
        if len(self._arrays) > MAX_ECHOES:
            self._arrays.popitem(last=False)

    def of(self, batch: object) -> bytes | None:
        """Return the messages of a batch as one JSON array, if they are remembered."""
        known = self._arrays.get(id(batch))
        return known[1] if known is not None and known[0] is batch else None
