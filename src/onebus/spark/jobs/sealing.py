"""Young files become large ones, which plain readers see.

Rows leave the tail and become visible in one commit. Nothing that was visible is touched, so no reader ever sees a row
twice. Young files whose rows are visible stay for a while: somebody may be reading them.
"""

import math
import time
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from onebus.spark.jobs.commits import Commit
from onebus.spark.jobs.lake import FOLDER_COLUMNS, TAIL, Lake

ROWS_PER_FILE: Final = 2_000_000
GRACE_SECONDS: Final = 3600.0
"""For how long a reader may work with young files that are visible by now."""


def seal(lake: Lake, newest: Commit) -> Commit:
    """Make the tail visible as few large files, and return the commit that does so."""
    tasks = math.ceil(newest.tail_rows / ROWS_PER_FILE) or 1
    frame = lake.tail(newest)
    frame = frame.coalesce(1) if tasks == 1 else frame.repartitionByRange(tasks, *FOLDER_COLUMNS, "partition", "offset")
    number = newest.number + 1
    moves = lake.stage(frame, number, f"{number:012}-{uuid4().hex}")
    commit = replace(
        newest, number=number, tail=(), tail_rows=0, tail_ms=0, moves=moves, time_ms=time.time_ns() // 1_000_000
    )
    lake.commit(commit)
    sweep(lake, commit)
    return commit


def sweep(lake: Lake, newest: Commit) -> None:
    """Remove young files that nobody needs any more."""
    for name in lake.files.names(TAIL):
        folder = f"{TAIL}/{name}"
        if folder not in newest.tail and lake.files.age_seconds(folder) > GRACE_SECONDS:
            lake.files.delete(folder)
