"""One data frame over lake and store. The seam between them is what the lake has committed, partition by partition."""

from functools import reduce
from typing import TYPE_CHECKING

from onebus.errors import InvalidArgument
from onebus.spark.jobs.batches import planned, read_parts
from onebus.spark.jobs.lake import MESSAGE_COLUMNS, Lake
from onebus.spark.jobs.store import JobStore
from onebus.spark.logs import FEED, TOPIC, Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVERYTHING = 2**62


def history(spark: "SparkSession", topic: str, *, lake: str, url: str | None = None, kind: str = TOPIC) -> "DataFrame":
    """Return all messages of a topic, or of a ``feed``, that are in a lake or in the store, each once.

    The columns are those of the lake. It is a snapshot: what comes later is in a data frame that is made later, and one
    that is used after the store has forgotten what it was to read there is an error that says so.

    Raises:
        InvalidArgument: dead letters have no history but what is in the lake.
    """
    if kind not in (TOPIC, FEED):
        raise InvalidArgument(f"There is a history of topics and feeds, and not of kind {kind!r}.")
    its_lake, store = Lake(spark, lake), JobStore(spark, url)
    # The store is asked after the lake: what the lake does not have yet, the store still has.
    newest = its_lake.settled()
    held = any((one.kind, one.topic) == (kind, topic) for one in newest.holdings)
    seen = store.look([Wanted(kind, (topic,))], all_must_exist=not held)
    parts = [part for part in planned(newest, seen, until=None, most=_EVERYTHING) if part.size]
    frames = [its_lake.frame(newest, kind=kind, topic=topic).select(*MESSAGE_COLUMNS)]
    if parts:
        frames.append(read_parts(spark, store.options, parts).select(*MESSAGE_COLUMNS))
    return reduce(lambda one, other: one.unionByName(other), frames)
