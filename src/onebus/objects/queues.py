"""All queues of a store, with what is in them."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from onebus.log.names import PLACE_SEPARATOR
from onebus.stores.base import LogStat, Store

ASKED_AT_ONCE: Final = 20

_KIND: Final = "queue:"


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a queue holds at one moment."""

    name: str
    waiting: int
    """Messages that could be consumed now."""
    held: int
    """Messages that are with a consumer, or wait to be delivered again."""
    dead: int
    """Messages that could not be handled."""
    delayed: int
    """Messages that wait for their time."""
    ttl: float | None
    """For how many seconds the queue lives without anybody attached; None if it has ended."""


async def queue_states(store: Store, prefix: str = "") -> list[QueueState]:
    """Return the state of every queue whose name starts with `prefix`, by name."""
    parts: dict[str, set[str]] = {}
    for log in await store.list_logs(_KIND + prefix):
        name, _, part = log.removeprefix(_KIND).partition(PLACE_SEPARATOR)
        if name.startswith(prefix):
            parts.setdefault(name, set()).add(part)
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def state(name: str) -> QueueState:
        async with turns:
            return await queue_state(store, name, parts[name])

    return list(await asyncio.gather(*(state(name) for name in sorted(parts))))


async def queue_state(store: Store, name: str, parts: Collection[str] = ("dead", "later")) -> QueueState:
    """Return the state of one queue, of which these logs exist beside that of its messages."""
    log = _KIND + name
    stat = await store.stat(log)
    return QueueState(
        name=name,
        waiting=stat.claimable if stat is not None else 0,
        held=stat.held if stat is not None else 0,
        dead=await _count(store, f"{log}|dead") if "dead" in parts else 0,
        delayed=await _count(store, f"{log}|later") if "later" in parts else 0,
        ttl=stat.ttl_seconds if stat is not None else None,
    )


async def _count(store: Store, log: str) -> int:
    stat: LogStat | None = await store.stat(log)
    return stat.claimable + stat.held if stat is not None else 0
