"""Pushing a message once, however often it is tried.

A record stands for the push. Whoever creates it pushes, and notes the id on it; everyone else takes the id from there.
If the pusher dies in between, the next one takes over: rather twice than never.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from onebus.errors import VersionConflict
from onebus.stores.base import Store

TAKE_OVER_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.02

_PUSHING = b"pushing"


class Once:
    """A push with a name, within a window of time."""

    def __init__(self, store: Store, record: str, window_seconds: float) -> None:
        self._store = store
        self._record = record
        self._window_seconds = window_seconds

    async def run(self, push: Callable[[], Awaitable[int]]) -> int:
        """Push, or return the id of the push that came first."""
        known = await self._begin(expected=0)
        if known is not None:
            return known
        try:
            message_id = await push()
        except BaseException:
            # Nothing was stored, or nobody knows: the next one has to try.
            await asyncio.shield(self._store.delete(self._record))
            raise
        await self._store.put(self._record, {"id": b"%d" % message_id}, ttl_seconds=self._window_seconds)
        return message_id

    async def _begin(self, expected: int) -> int | None:
        """Return None to the one that may push, and the id to everyone else."""
        deadline = asyncio.get_running_loop().time() + TAKE_OVER_SECONDS
        while True:
            try:
                await self._store.put(
                    self._record, {"id": _PUSHING}, expected=expected, ttl_seconds=self._window_seconds
                )
            except VersionConflict:
                record = await self._store.get(self._record)
            else:
                return None
            if record is None:
                expected = 0
            elif (text := record.fields["id"]) != _PUSHING:
                return int(text)
            elif asyncio.get_running_loop().time() > deadline:
                expected = record.version
            else:
                await asyncio.sleep(LOOK_SECONDS)
