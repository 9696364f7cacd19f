"""Large batches on their way to staging logs, without Lua, which looks at each byte of what it gets.

Only who has staged a log appends to it, and so knows the ids of what comes next: the batch can be added by a plain
command, in one transaction with a script that counts it. The first one comes through the script that all others use: it
creates what then must be there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from onebus.stores.base import AppendRequest, staging_gone
from onebus.stores.redis import scripts
from onebus.stores.redis.connection import Argument, Connections
from onebus.stores.redis.names import log_keys

MAX_KNOWN: Final = 1000
"""To others, batches are appended as to any log."""


@dataclass(slots=True)
class _Known:
    """Where a staging log is; one batch at a time may be on its way, as ids must arrive in order."""

    last_id: int = 0
    bytes: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class StagedLogs:
    """The staging logs that this store has created, while nothing goes wrong with them."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._known: dict[str, _Known] = {}

    def add(self, log: str) -> None:
        """Note that a log was staged, to which nothing was appended yet."""
        self._known[log] = _Known()
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    async def append(
        self, log: str, request: AppendRequest, now: Argument, as_usual: Callable[[], Awaitable[int]]
    ) -> int:
        """Append a batch and return the id of its first message; `as_usual` appends it as to any log."""
        known = self._known.get(log)
        if known is None:
            return await as_usual()
        async with known.turn:
            first_id = None
            try:
                if known.last_id and self._known.get(log) is known:
                    first_id = await self._append(log, known, request, now)
                if first_id is None:
                    first_id = await as_usual()
            except BaseException:
                # Nobody knows where the log is now.
                self._known.pop(log, None)
                raise
            known.last_id = first_id + request.count - 1
            known.bytes += len(request.batch)
            return first_id

    async def _append(self, log: str, known: _Known, request: AppendRequest, now: Argument) -> int | None:
        keys, count, size = log_keys(log), request.count, len(request.batch)
        last_id = known.last_id + count
        fields = ("n", count, "e", known.bytes + size, "t", 0, "b", request.batch)
        both = await self._connections.run_with(
            scripts.ADVANCE,
            keys,
            [now, known.last_id, count, size],
            ("XADD", keys[1], "NOMKSTREAM", last_id, *fields),
        )
        if both is None:
            return None
        if not both[0] or both[1] is None:
            raise staging_gone(log)
        return last_id - count + 1
