"""Looks into a lake as programs do that know nothing of onebus."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset as ds

Ids = list[tuple[int, int]]


def plain(lake: Path, name: str, *, kind: str = "topic") -> Ids:
    """Return partition and id of each message that a plain reader of Parquet sees, sorted."""
    if not list(lake.glob("kind=*")):
        return []
    table = ds.dataset(str(lake), partitioning="hive").to_table(filter=(ds.field("kind") == kind))
    rows = zip(*(table.column(column).to_pylist() for column in ("topic", "partition", "offset")), strict=True)
    return sorted((partition, id_) for topic, partition, id_ in rows if topic == name)


def ids(**partitions: int) -> Ids:
    """Return the ids of partitions with so many messages: ``ids(p0=3, p1=1)``."""
    return [(int(name[1:]), id_) for name, last in sorted(partitions.items()) for id_ in range(1, last + 1)]


def files(lake: Path) -> Sequence[Path]:
    """Return the files that a plain reader sees."""
    return sorted(lake.glob("kind=*/*/*/*.parquet"))
