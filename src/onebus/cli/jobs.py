"""One job of the data pipeline at work: its Spark, what is seen of it, and the ways in which it may be ended.

Ctrl-C and SIGTERM let it stop after the current batch; a second Ctrl-C ends it at once.
"""

import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self

import typer
from rich.console import Console
from rich.status import Status

from onebus.bus import DEFAULT_URL
from onebus.cli.output import redacted
from onebus.cli.session import TERMINATED
from onebus.errors import BusError, SparkFailed
from onebus.spark.jobs.running import Stop, newest_batch, run_query
from onebus.spark.jobs.session import job_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERRUPTED: Final = 128 + signal.SIGINT


class Job:
    """Runs one job: ``with Job(…) as job`` starts Spark, and leaves with the fitting exit code.

    What goes wrong in Spark becomes one error of onebus.
    """

    def __init__(
        self, name: str, *, stores: Sequence[str] | None, master: str | None, conf: Sequence[str] | None
    ) -> None:
        self.stop = Stop()
        self.spark: SparkSession
        self.out = Console(soft_wrap=True)
        """Where results go: stdout."""
        self._name = name
        self._urls = tuple(stores or (DEFAULT_URL,))
        self._master = master
        self._conf = tuple(conf or ())
        self._console = Console(stderr=True)
        self._status = Status("", console=self._console)
        self._stack = ExitStack()
        self._code = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._console.is_terminal:
                stack.enter_context(self._status)
            self.progress(f"{self._name}: starting Spark")
            session = job_session(self._name, master=self._master, conf=self._conf, urls=self._urls)
            self.spark = stack.enter_context(session)
            # Spark has handlers of its own, which cancel what runs.
            for number in (signal.SIGINT, signal.SIGTERM):
                stack.callback(signal.signal, number, signal.signal(number, self._end))
            self._stack = stack.pop_all()
        self.progress(f"{self._name}: running")
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._stack.close()
        if error is None and self._code:
            raise typer.Exit(self._code)
        if isinstance(error, Exception) and not isinstance(error, BusError | typer.Exit):
            failure = _failure(error)
            if failure is not None:
                raise failure from error

    def progress(self, text: str) -> None:
        """Show how far the job has come: in one line that changes, or on no terminal a line each."""
        if self._console.is_terminal:
            self._status.update(text)
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Tell the person at the terminal something that stays."""
        self._console.print(redacted(text), markup=False, highlight=False, soft_wrap=True)

    def follow(self, query: "StreamingQuery") -> None:
        """Show the progress of a streaming query until it ends, and in the end what it has read."""
        read: dict[int, int] = {}
        late: dict[int, int] = {}
        seen: tuple[int, str] | None = None

        def look(query: "StreamingQuery") -> None:
            nonlocal seen
            # The last 100 are all read anew each time, so only when there is another one.
            if (newest := newest_batch(query)) == seen:
                return
            seen = newest
            for progress in query.recentProgress:
                number, rows = progress["batchId"], progress["numInputRows"]
                late[number] = sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
                if rows and number not in read:
                    read[number] = rows
                    self.progress(f"batch {number}: {rows} messages")

        run_query(query, self.stop, look)
        self.say(f"{sum(read.values())} messages in {len(read)} batches")
        if any(late.values()):
            self.say(f"{sum(late.values())} groups of messages came too late to be regarded; see --watermark")

    def _end(self, number: int, _: FrameType | None) -> None:
        if self.stop.is_set and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._code = INTERRUPTED if number == signal.SIGINT else TERMINATED
        self.stop.set()
        print("Stopping after the current batch; Ctrl-C again ends at once.", file=sys.stderr, flush=True)  # noqa: T201


def _failure(error: Exception) -> BusError | None:
    """Return what Spark says as one of our errors; None if it is not Spark that speaks."""
    is_from_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    return SparkFailed.of(str(error)) if is_from_spark else None
