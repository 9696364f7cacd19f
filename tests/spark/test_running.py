"""When a stream that is told to stop does so."""

from typing import Any

import pytest

from onebus.spark.jobs.running import Stop, run_query


class Query:
    """A streaming query that is busy all the time, and has finished another batch at every look."""

    def __init__(self, *, is_busy: bool = True) -> None:
        self.isActive = True
        self.status = {"isTriggerActive": is_busy}
        self.batches = 0

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return {"batchId": self.batches - 1, "timestamp": f"at {self.batches}"} if self.batches else None

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self) -> None:  # noqa: N802
        assert not self.isActive


@pytest.mark.parametrize("before", [0, 3])
def test_a_busy_stream_stops_after_the_batch_that_it_works_on(before: int) -> None:
    query, stop, looks = Query(), Stop(), 0
    query.batches = before
    stop.set()

    def look(_: object) -> None:
        nonlocal looks
        looks += 1
        query.batches += looks == 3
        assert looks < 10

    run_query(query, stop, look)  # type: ignore[arg-type]

    assert (query.isActive, query.batches) == (False, before + 1)


def test_an_idle_stream_stops_at_once() -> None:
    query, stop = Query(is_busy=False), Stop()
    stop.set()

    run_query(query, stop)  # type: ignore[arg-type]

    assert not query.isActive
