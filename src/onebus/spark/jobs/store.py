"""The store as jobs look at it: which logs there are, and how far each of them reaches."""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from onebus.spark.connection import Connection, connect
from onebus.spark.given import Given
from onebus.spark.logs import DEAD, FEED, QUEUE, TOPIC, SourceLog, Wanted
from onebus.spark.ranges import stats_of
from onebus.spark.session import URL_CONF
from onebus.stores.base import LogStat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Seen(NamedTuple):
    """A log that exists, and how far it reaches."""

    kind: str
    log: SourceLog
    stat: LogStat


class JobStore:
    """The store that a job reads, known to the driver."""

    def __init__(self, spark: "SparkSession", url: str | None) -> None:
        self.urls = Given({} if url is None else {"url": url}).urls(spark.conf.get(URL_CONF, None))
        self.connection: Connection = connect(self.urls)

    @property
    def options(self) -> dict[str, str]:
        """The options with which Spark finds the same store."""
        return {"url": " ".join(self.urls)}

    def look(self, wanted: Sequence[Wanted], *, all_must_exist: bool = True) -> list[Seen]:
        """Return the logs that are wanted and exist.

        Raises:
            TopicMissing: there is no topic of that name, and it must exist.
        """
        return self.connection.run(self._look(wanted, all_must_exist))

    def names(self, wanted: Sequence[Wanted]) -> set[tuple[str, str]]:
        """Return kind and name of the topics, and of the queues for dead letters, that exist, empty ones among them."""
        return self.connection.run(self._names(wanted))

    async def _names(self, wanted: Sequence[Wanted]) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for one in wanted:
            if one.kind == TOPIC:
                found |= {(TOPIC, log.topic) for log in await one.logs(self.connection.store, all_must_exist=False)}
            elif one.kind == DEAD:
                found |= {(DEAD, log.topic) for log in await Wanted(QUEUE, pattern=".*").logs(self.connection.store)}
        return found

    async def _look(self, wanted: Sequence[Wanted], all_must_exist: bool) -> list[Seen]:
        seen: dict[str, Seen] = {}
        for one in wanted:
            logs = await one.logs(self.connection.store, all_must_exist=all_must_exist)
            for log, stat in zip(logs, await stats_of(self.connection.store, logs), strict=True):
                if stat is not None:
                    seen[log.name] = Seen(one.kind, log, stat)
        return list(seen.values())


def exactly(names: Sequence[str]) -> dict[str, str]:
    """Return the option with which Spark reads some names, whatever letters they have."""
    names = list(dict.fromkeys(names))
    if any("," in name or name != name.strip() for name in names):
        return {"subscribePattern": "|".join(map(re.escape, names))}
    return {"subscribe": ",".join(names)}


def matching(names: Sequence[str]) -> dict[str, str]:
    """Return the option with which Spark reads some names; in a name, ``*`` stands for any letters."""
    if not any("*" in name for name in names):
        return exactly(names)
    return {"subscribePattern": "|".join(fnmatch.translate(name) if "*" in name else re.escape(name) for name in names)}


def wanted_of(topics: Sequence[str], feeds: Sequence[str], dead_letters: Sequence[str]) -> list[Wanted]:
    """Return what somebody wants who names topics, channels and queues; in a name, ``*`` stands for any letters."""
    return [*wanted_of_kind(TOPIC, topics), *wanted_of_kind(FEED, feeds), *wanted_of_kind(DEAD, dead_letters)]


def wanted_of_kind(kind: str, names: Sequence[str]) -> Iterator[Wanted]:
    """Return what somebody wants who names objects of one kind."""
    exact = tuple(dict.fromkeys(name for name in names if "*" not in name))
    if exact:
        yield Wanted(kind, exact)
    for name in names:
        if "*" in name:
            yield Wanted(kind, pattern=fnmatch.translate(name))
