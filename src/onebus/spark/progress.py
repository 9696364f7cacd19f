"""How a stream goes on: from where, how far, and what it has missed. Nothing but arithmetic on offsets."""

from collections.abc import Iterable, Iterator, Mapping

from onebus.spark.logs import SourceLog
from onebus.spark.losses import missing_between
from onebus.spark.offsets import Offsets, Place, Position
from onebus.spark.ranges import Range
from onebus.stores.base import LogStat

Extents = Mapping[Place, Range]
"""What each partition holds, from the oldest message to the newest."""


def extents_of(logs: Iterable[SourceLog], stats: Iterable[LogStat | None]) -> Extents:
    return {
        (log.topic, log.partition): Range(log, 1, 1, "")
        if stat is None
        else Range(log, stat.first_id, stat.last_id + 1, stat.epoch)
        for log, stat in zip(logs, stats, strict=True)
    }


def ends_of(extents: Extents) -> Offsets:
    return Offsets((place, Position(extent.end, extent.epoch)) for place, extent in extents.items())


def begin_of(start: Offsets, place: Place, epoch: str) -> int:
    """Return where to go on in one life of a partition. One that is new is read from its beginning."""
    position = start.get(place)
    return position.offset if position is not None and position.epoch in ("", epoch) else 1


def lost_since(start: Offsets, extents: Extents) -> Iterator[str]:
    """Return in words what was to be read, but is gone."""
    for (topic, partition), position in start.items():
        extent = extents.get((topic, partition))
        if extent is None or (position.epoch and not extent.epoch):
            yield f"all from {position.offset} on of {topic}:{partition}, which was deleted"
        elif position.epoch not in ("", extent.epoch):
            yield f"all from {position.offset} on of {topic}:{partition}, which was deleted and made anew"
    for place, extent in extents.items():
        begin = begin_of(start, place, extent.epoch)
        if begin < extent.first and not extent.log.may_have_gaps:
            yield missing_between(extent.log, begin, extent.first)


def until(target: Offsets, extents: Extents) -> Extents:
    """Return extents without what came after a target, unless a partition has begun a new life meanwhile."""
    capped = {}
    for place, extent in extents.items():
        position = target.get(place)
        if position is None:
            continue
        # Where there was no log yet, all that has come since is new.
        is_same = position.epoch in ("", extent.epoch)
        end = min(extent.end, position.offset) if is_same else extent.end
        capped[place] = extent._replace(end=end)
    return capped


def limited(start: Offsets, extents: Extents, rows: int) -> Extents:
    """Return extents that end after about so many messages, of each partition in proportion to what it has.

    A partition that has something gets at least one message, so that none waits forever behind larger ones.
    """
    unread = {
        place: extent._replace(first=max(begin_of(start, place, extent.epoch), extent.first))
        for place, extent in extents.items()
    }
    total = sum(extent.size for extent in unread.values())
    if total <= rows:
        return extents
    return {
        place: extent._replace(end=extent.first + max(extent.size * rows // total, 1)) if extent.size else extent
        for place, extent in unread.items()
    }
