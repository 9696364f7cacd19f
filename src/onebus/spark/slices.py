"""Reads the messages of a range out of a store, as record batches of Arrow."""

from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

import pyarrow as pa

from onebus.errors import CorruptBatch
from onebus.log.batch import Batch, decode
from onebus.log.stored import StoredBatch
from onebus.spark.columns import Columns, Piece
from onebus.spark.connection import Connection
from onebus.spark.losses import missing_between, report_lost
from onebus.spark.ranges import Range
from onebus.stores.base import MEBIBYTE, Slice

READ_BYTES: Final = 4 * MEBIBYTE
"""How much is fetched at once."""
ROWS: Final = 64 * 1024
"""Small batches are put together until they have so many messages, or more."""
BYTES: Final = 32 * MEBIBYTE
"""... or so many bytes, which may be more than were fetched, because batches may be compressed."""


def read_range(connection: Connection, wanted: Range, columns: Columns, *, fail: bool) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range, in order.

    Raises:
        CorruptBatch: a batch cannot be read.
        MessagesLost: with `fail`, if some are gone.
    """
    pieces: list[Piece] = []
    rows = size = 0
    for stored, first in _batches(connection, wanted, fail=fail):
        for piece in _pieces(stored, first, wanted):
            pieces.append(piece)
            rows += piece.rows
            size += _bytes(piece.batch)
            if rows >= ROWS or size >= BYTES:
                yield columns.record_batch(wanted.log, pieces)
                pieces, rows, size = [], 0, 0
    if pieces:
        yield columns.record_batch(wanted.log, pieces)


def _bytes(batch: Batch) -> int:
    return sum(column.data.nbytes for column in (batch.values, batch.keys, batch.headers) if column is not None)


def _batches(connection: Connection, wanted: Range, *, fail: bool) -> Iterator[tuple[StoredBatch, int]]:
    """Yield the batches of a range, each with its first id that counts. The next ones come meanwhile."""
    next_id = wanted.first
    fetching = _fetch(connection, wanted, next_id)
    while next_id < wanted.end:
        found = fetching.result()
        if found.epoch != wanted.epoch:
            _check_life(wanted, next_id, fail=fail)
            return
        if not found.batches:
            _check_gap(wanted, next_id, wanted.end, fail=fail)
            return
        reached = found.batches[-1].last_id + 1
        if reached < wanted.end:
            fetching = _fetch(connection, wanted, reached)
        for stored in found.batches:
            # A log may keep a batch longer than its first messages.
            first = max(stored.first_id, found.first_id, next_id)
            _check_gap(wanted, next_id, first, fail=fail)
            if first < wanted.end:
                yield stored, first
            next_id = stored.last_id + 1


def _fetch(connection: Connection, wanted: Range, next_id: int) -> "Future[Slice]":
    limit = wanted.end - next_id
    return connection.begin(
        connection.store.read(wanted.log.name, after=next_id - 1, limit=limit, max_bytes=READ_BYTES)
    )


def _check_gap(wanted: Range, first: int, end: int, *, fail: bool) -> None:
    end = min(end, wanted.end)
    if first < end and not wanted.log.may_have_gaps:
        report_lost([missing_between(wanted.log, first, end)], fail=fail)


def _check_life(wanted: Range, first: int, *, fail: bool) -> None:
    # Of a queue, whatever is there is read: it may end at any time.
    if wanted.spans is None:
        report_lost([f"{missing_between(wanted.log, first, wanted.end)}, which was deleted"], fail=fail)


def _pieces(stored: StoredBatch, first: int, wanted: Range) -> Iterator[Piece]:
    last = min(stored.last_id, wanted.end - 1)
    spans = ((first, last),) if wanted.spans is None else _inside(wanted, first, last)
    batch = None
    for start, end in spans:
        if batch is None:
            try:
                batch = decode(stored.blob)
            except CorruptBatch as error:
                place = f"messages {stored.first_id} to {stored.last_id} of {wanted.log} ({wanted.log.name!r})"
                raise CorruptBatch(f"{error} It holds the {place}.") from error
        yield Piece(batch, start - stored.first_id, end - start + 1, start)


def _inside(wanted: Range, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield what is wanted of some ids."""
    spans = wanted.spans or ()
    at = bisect_left(spans, first, key=lambda span: span[1])
    while at < len(spans) and spans[at][0] <= last:
        yield max(spans[at][0], first), min(spans[at][1], last)
        at += 1
