"""The store forgets what is safely in the lake."""

import asyncio
from collections.abc import Sequence

from onebus.objects.topics.cursors import Cursors
from onebus.objects.topics.names import checked_group
from onebus.spark.jobs.batches import source_of
from onebus.spark.jobs.commits import Commit
from onebus.spark.jobs.lake import Lake
from onebus.spark.jobs.store import JobStore, Seen
from onebus.spark.logs import TOPIC
from onebus.stores.base import Store


def trim(store: JobStore, lake: Lake, newest: Commit, seen: Sequence[Seen], groups: Sequence[str]) -> int:
    """Let partitions of topics forget what a commit has and some groups have read; returns how many messages go."""
    held = [(one, holding) for one in seen if (holding := newest.holding(source_of(one))) is not None]
    behind = [(one, holding.end) for one, holding in held if one.kind == TOPIC and one.stat.first_id < holding.end]
    if not behind:
        return 0
    # A machine that stops now must not take along what was only about to be written.
    lake.files.settle()
    return store.connection.run(_forget_all(store.connection.store, behind, groups))


async def _forget_all(store: Store, behind: Sequence[tuple[Seen, int]], groups: Sequence[str]) -> int:
    return sum(await asyncio.gather(*(_forget(store, one, end, groups) for one, end in behind)))


async def _forget(store: Store, one: Seen, end: int, groups: Sequence[str]) -> int:
    for group in groups:
        cursor = await Cursors(store, checked_group(one.log.topic, group)).get(one.log.partition)
        position = cursor.position if cursor.epoch == one.stat.epoch else None
        end = min(end, (position or 0) + 1)
    if end <= one.stat.first_id:
        return 0
    return await store.forget(one.log.name, before=end, epoch=one.stat.epoch) - one.stat.first_id
