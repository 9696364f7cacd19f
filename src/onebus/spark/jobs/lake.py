"""The lake: Parquet files by object and date, and beside them the record of what they hold.

    LAKE/kind=topic/object=clicks/date=2026-11-16/000000000012-0000.parquet
    LAKE/_onebus/commits/000000000012.json      what the lake holds; the newest counts
    LAKE/_onebus/tail/…/part-….parquet          young files, until enough of them are together
    LAKE/_onebus/staging/…                      what a batch is about to write

The first part of a visible file's name is the commit that made it visible. Such a file is never changed or
removed. So whoever reads the folders sees each message at most once at any moment, whatever is going on, and everything
but the tail. Whoever knows the commits, as `Lake.frame` does, sees the tail too.
"""

import re
import time
from typing import TYPE_CHECKING, Final

from onebus.errors import LakeBusy
from onebus.spark.jobs.commits import Commit, Move
from onebus.spark.jobs.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "epoch")
FOLDER_COLUMNS: Final = ("kind", "object", "date")
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>, epoch string, kind string, object string, date date"
)
FILE_NAME: Final = re.compile(r"(\d{12})-\d+\.parquet")
COMMITS: Final = "_onebus/commits"
TAIL: Final = "_onebus/tail"
STAGING: Final = "_onebus/staging"
KEPT_COMMITS: Final = 20
PATIENCE_SECONDS: Final = 5.0
"""How long a reader waits for a writer that is between a commit and the last of its moves."""


class Lake:
    """One lake. `newest` is all that is known of it; `commit` is the only thing that changes it."""

    def __init__(self, spark: "SparkSession", place: str) -> None:
        self._spark = spark
        self.files = Files(spark, place)

    def newest(self) -> Commit:
        """Return what the lake holds; nothing if there is no lake yet."""
        names = self._commits()
        return Commit.decode(self.files.read(f"{COMMITS}/{names[-1]}")) if names else Commit(0)

    def commit(self, commit: Commit) -> None:
        """Add a commit, and make visible what it makes visible.

        Raises:
            LakeBusy: somebody else has added a commit meanwhile.
        """
        path = f"{COMMITS}/{commit.number:012}.json"
        is_first = self.files.create(path, commit.encode())
        names = self._commits()
        if is_first and not path.endswith(names[-1]):
            # It comes so late that the commit in its place is gone already.
            self.files.delete(path)
            is_first = False
        if not is_first:
            raise LakeBusy(
                f"Somebody else writes to the lake {self.files.root}. Let only one archive at a time do so; "
                "this one may be started again."
            )
        self.publish(commit)
        for name in names[:-KEPT_COMMITS]:
            self.files.delete(f"{COMMITS}/{name}")

    def publish(self, commit: Commit) -> None:
        """Make visible what a commit makes visible; what is visible already stays so."""
        for move in commit.moves:
            self.files.move(move.staged, move.path)

    def recover(self) -> Commit:
        """Finish what a writer that died has begun, and return what the lake holds."""
        newest = self.newest()
        self.publish(newest)
        # What is staged for the next commit may belong to somebody who is still alive.
        for name in self.files.names(STAGING):
            if int(name.partition("-")[0]) <= newest.number:
                self.files.delete(f"{STAGING}/{name}")
        return newest

    def settled(self) -> Commit:
        """Return what the lake holds, once all of it can be read."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            newest = self.newest()
            if self.is_published(newest) or time.monotonic() > end:
                return newest
            time.sleep(0.05)

    def _commits(self) -> list[str]:
        return [name for name in self.files.names(COMMITS) if name.endswith(".json")]

    def is_published(self, commit: Commit) -> bool:
        return not any(self.files.exists(move.staged) for move in commit.moves)

    def frame(self, commit: Commit, *, kind: str | None = None, topic: str | None = None) -> "DataFrame":
        """Return the messages that the lake holds after a commit, or those of one object, each once."""
        from pyspark.sql.functions import col

        found = self.visible(commit).unionByName(self.tail(commit))
        if kind is not None:
            found = found.where(col("kind") == kind)
        return found if topic is None else found.where((col("object") == topic) & (col("topic") == topic))

    def visible(self, commit: Commit, *, with_strangers: bool = False) -> "DataFrame":
        """Return what commits have made visible up to this one, and, if wanted, in files that no commit knows."""
        # A writer has died between its commit and the last of its moves. That is asked before the folders are looked
        # at: what somebody moves meanwhile is then not found, which is an error, and else it would just be left out.
        pending = [move.staged for move in commit.moves if self.files.exists(move.staged)]
        frame = self._spark.createDataFrame([], SCHEMA)
        folders = [name for name in self.files.names("") if name.startswith("kind=")]
        if folders:
            number = "regexp_extract(_metadata.file_name, '^([0-9]{12})-[0-9]+[.]parquet$', 1)"
            known = f"try_cast({number} as bigint) <= {commit.number}"
            found = self._read(self.files.root, [self.files.url(name) for name in folders])
            frame = found.where(f"{known} or {number} = ''" if with_strangers else known)
        if pending:
            folder = "/".join(pending[0].split("/")[:3])
            frame = frame.unionByName(self._read(self.files.url(folder), [self.files.url(path) for path in pending]))
        return frame

    def _read(self, base: str, paths: list[str]) -> "DataFrame":
        return self._spark.read.schema(SCHEMA).option("basePath", base).parquet(*paths)

    def tail(self, commit: Commit) -> "DataFrame":
        """Return what a commit leaves in young files."""
        if not commit.tail:
            return self._spark.createDataFrame([], SCHEMA)
        return self._spark.read.schema(SCHEMA).parquet(*(self.files.url(folder) for folder in commit.tail))

    def stage(self, frame: "DataFrame", number: int, name: str) -> tuple[Move, ...]:
        """Write messages as files that a commit can make visible, and return them."""
        folder = f"{STAGING}/{name}"
        write(frame, self.files.url(folder), by_folder=True)
        paths = self.files.walk(folder, ".parquet")
        return tuple(
            Move(f"{folder}/{path}", f"{path.rpartition('/')[0]}/{number:012}-{at:04}.parquet")
            for at, path in enumerate(paths)
        )


def write(frame: "DataFrame", url: str, *, by_folder: bool) -> None:
    """Write messages to a new folder, sorted by where they come from."""
    spark = frame.sparkSession
    name = "spark.sql.parquet.outputTimestampType"
    usual = spark.conf.get(name, None)
    # What Spark would write is known to few other readers.
    spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        writer = frame.sortWithinPartitions(*FOLDER_COLUMNS, "partition", "offset").write
        if by_folder:
            writer = writer.partitionBy(*FOLDER_COLUMNS)
        writer.option("compression", "zstd").mode("errorifexists").parquet(url)
    finally:
        if usual is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, usual)
