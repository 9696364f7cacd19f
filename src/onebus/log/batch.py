"""The record batch: what producers append in one go, as one blob.

The layout is columnar, so that a reader who wants columns (Spark, through Arrow) takes them as they
are, and a reader who wants messages cuts them out with slices. All numbers are little-endian::

    offset  size  field
         0     2  magic "OB"
         2     1  version (1)
         3     1  flags: which optional columns follow, and whether the body is compressed
         4     4  count         messages in the batch, at least 1
         8     4  body size     bytes of the body before compression
        12     4  kind          of all messages, unless the kinds column is present
        16     8  time          milliseconds since 1970, of all messages, unless the times column is present
        24     4  reserved (0)
        28     4  CRC-32        of bytes 0..27 and of everything after this header
        32        body          compressed with zstd when the flag says so

    body:   values    binary column
            keys      binary column        (flag KEYS)
            headers   binary column        (flag HEADERS; each value is a msgpack map)
            times     int64 x count        (flag TIMES)
            kinds     uint8 x count        (flag KINDS)

    binary column:  validity   a bit per message, least significant first (not for values)
                    offsets    int32 x (count + 1)
                    bytes      offsets[count] bytes

Every part of the body starts at a multiple of 8. Offsets and bytes are the buffers of an Arrow binary
array, validity is Arrow's bitmap, times are an Arrow ``timestamp[ms]``.
"""

import struct
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from io import BytesIO
from itertools import accumulate, pairwise
from operator import sub
from typing import NamedTuple

import msgspec
from isal.isal_zlib import crc32

from onebus.errors import CorruptBatch, PayloadTooLarge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"OB"
VERSION = 1
MAX_BODY_BYTES = 256 * 1024 * 1024

_HEADER = struct.Struct("<2sBBIIIqII")
_HEADER_BYTES = _HEADER.size
_CRC_AT = _HEADER_BYTES - 4
_PADDING = bytes(8)

_headers_encoder = msgspec.msgpack.Encoder()
_headers_decoder = msgspec.msgpack.Decoder(dict[str, str])


Part = bytes | memoryview
"""A piece of a body, as it will stand there."""


class Kind(IntEnum):
    """What a message's bytes are, so that it comes back as what it was."""

    BYTES = 0
    TEXT = 1
    JSON = 2


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One message as a log keeps it; `time_ms` is filled in by the batch when the producer gave none."""

    value: bytes
    kind: Kind = Kind.BYTES
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    time_ms: int | None = None


class BinaryColumn(NamedTuple):
    """The buffers of an Arrow binary array: `validity` is None when nothing is null."""

    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    def cells(self) -> list[bytes | None]:
        data = bytes(self.data)
        cells: list[bytes | None] = [data[start:end] for start, end in pairwise(self.offsets.tolist())]
        if self.validity is not None:
            bits = int.from_bytes(self.validity, "little")
            for index in range(len(cells)):
                if not bits >> index & 1:
                    cells[index] = None
        return cells


# Flags. Plain numbers: an enumeration would take longer to test than the rest of a small batch to decode.
_ZSTD, _KEYS, _HEADERS, _TIMES, _MIXED = 1, 2, 4, 8, 16
_KNOWN_FLAGS = _ZSTD | _KEYS | _HEADERS | _TIMES | _MIXED
_KINDS = {kind.value: kind for kind in Kind}


class Batch(msgspec.Struct, frozen=True):
    """A decoded batch: columns as buffers into the blob (or into its decompressed body), nothing copied."""

    count: int
    time_ms: int
    kind: Kind
    values: BinaryColumn
    keys: BinaryColumn | None = None
    headers: BinaryColumn | None = None
    times: memoryview | None = None
    kinds: memoryview | None = None

    @property
    def is_plain(self) -> bool:
        """Whether its messages are nothing but values, all of one kind and time."""
        return self.keys is None and self.headers is None and self.times is None and self.kinds is None

    def payloads(self, first: int = 0, stop: int | None = None) -> list[bytes]:
        """Return just the values, in order, of all messages or some: the cheapest way to them."""
        offsets = self.values.offsets[first : None if stop is None else stop + 1].tolist()
        data = self.values.data[offsets[0] : offsets[-1]]
        # A third faster than to cut out each of them with a slice.
        return list(map(BytesIO(data).read, map(sub, offsets[1:], offsets)))

    def entries(self) -> list[Entry]:
        """Return the messages, in order."""
        payloads = self.payloads()
        if self.is_plain:
            kind, time_ms = self.kind, self.time_ms
            return [Entry(value, kind, None, None, time_ms) for value in payloads]
        nothing = [None] * self.count
        return [
            Entry(value, kind, key, headers, time_ms)
            for value, kind, key, headers, time_ms in zip(
                payloads,
                [self.kind] * self.count if self.kinds is None else [_KINDS[kind] for kind in self.kinds],
                nothing if self.keys is None else self.keys.cells(),
                nothing if self.headers is None else map(decode_headers, self.headers.cells()),
                [self.time_ms] * self.count if self.times is None else self.times.tolist(),
                strict=True,
            )
        ]


def encode_columns(batch: Batch, *, compress: bool = False) -> bytes:
    """Return columns as one blob, without looking at a message: what `decode` takes apart, put together.

    Offsets begin at 0, bits of validity at the first one, and what is null has no bytes.

    Raises:
        PayloadTooLarge: together the values exceed what a batch may hold.
    """
    if not batch.count:
        raise ValueError("a batch holds at least one message")
    flags = 0
    parts = _parts(batch.values)
    for flag, column in ((_KEYS, batch.keys), (_HEADERS, batch.headers)):
        if column is not None:
            flags |= flag
            parts += [_all_valid(batch.count) if column.validity is None else column.validity, *_parts(column)]
    if batch.times is not None:
        flags |= _TIMES
        parts.append(batch.times)
    if batch.kinds is not None:
        flags |= _MIXED
        parts.append(batch.kinds)
    pieces = [part.cast("B") if isinstance(part, memoryview) else part for part in parts]
    return _seal(flags, batch.count, batch.kind, batch.time_ms, pieces, compress=compress)


def encode_values(values: Sequence[bytes], *, kind: Kind, now_ms: int, compress: bool = False) -> bytes:
    """Return messages that are nothing but values of one kind as one blob, without looking at each of them."""
    if not values:
        raise ValueError("a batch holds at least one message")
    return _seal(0, len(values), kind, now_ms, _binary_column(values), compress=compress)


def encode(entries: Sequence[Entry], *, now_ms: int, compress: bool = False) -> bytes:
    """Return the entries as one blob; those without a time get `now_ms`.

    Raises:
        PayloadTooLarge: together the entries exceed `MAX_BODY_BYTES`.
    """
    if not entries:
        raise ValueError("a batch holds at least one message")
    flags = 0
    parts = _binary_column([entry.value for entry in entries])

    keys = [entry.key for entry in entries]
    if keys.count(None) != len(keys):
        flags |= _KEYS
        parts += _nullable_column(keys)

    headers = [entry.headers for entry in entries]
    if any(headers):
        flags |= _HEADERS
        parts += _nullable_column([_headers_encoder.encode(one) if one else None for one in headers])

    times = [entry.time_ms for entry in entries]
    base_ms = now_ms if times[0] is None else times[0]
    if times.count(times[0]) != len(times):
        flags |= _TIMES
        parts.append(struct.pack(f"<{len(times)}q", *(now_ms if time is None else time for time in times)))

    kinds = [entry.kind for entry in entries]
    if kinds.count(kinds[0]) != len(kinds):
        flags |= _MIXED
        parts.append(bytes(kinds))

    return _seal(flags, len(entries), kinds[0], base_ms, parts, compress=compress)


def count_of(blob: bytes) -> int:
    """Return how many messages a blob holds, from its header alone."""
    _, _, count, *_ = _read_header(blob)
    return count


def decode(blob: bytes | memoryview) -> Batch:
    """Check a blob and return its columns without copying them.

    Raises:
        CorruptBatch: the bytes are not a whole, unchanged batch of a version that is known here.
    """
    view = memoryview(blob)
    flags, kind, count, body_bytes, time_ms, stored_crc = _read_header(view)
    stored = view[_HEADER_BYTES:]
    if crc32(stored, crc32(view[:_CRC_AT])) != stored_crc:
        raise CorruptBatch("The checksum of a batch does not match: its bytes were changed or cut.")
    body = _body(stored, body_bytes, flags)
    values, at = _read_column(body, 0, count)
    if not flags & ~_ZSTD:
        _check_end(body, at)
        return Batch(count, time_ms, _KINDS[kind], values)
    keys = headers = times = kinds = None
    if flags & _KEYS:
        keys, at = _read_nullable_column(body, at, count)
    if flags & _HEADERS:
        headers, at = _read_nullable_column(body, at, count)
    if flags & _TIMES:
        part, at = _take(body, at, count * 8)
        times = part.cast("q")
    if flags & _MIXED:
        kinds, at = _take(body, at, count)
        if max(kinds) > max(Kind):
            raise CorruptBatch("A batch holds a message of an unknown kind.")
    _check_end(body, at)
    return Batch(count, time_ms, _KINDS[kind], values, keys, headers, times, kinds)


def _read_header(view: bytes | memoryview) -> tuple[int, int, int, int, int, int]:
    if len(view) < _HEADER_BYTES:
        raise CorruptBatch(f"A batch has {len(view)} bytes, less than its header.")
    magic, version, flags, count, body_bytes, kind, time_ms, reserved, checksum = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise CorruptBatch("The bytes are not a batch: the magic number is missing.")
    if version != VERSION:
        raise CorruptBatch(f"A batch has version {version}, known is {VERSION}. Was it written by a newer onebus?")
    if flags & ~_KNOWN_FLAGS or reserved or kind not in _KINDS:
        raise CorruptBatch("A batch has flags that are not known here.")
    # Each message takes at least the four bytes of its offset, which bounds an absurd count.
    if not 0 < count * 4 < body_bytes <= MAX_BODY_BYTES:
        raise CorruptBatch(f"A batch claims {count} messages in {body_bytes} bytes.")
    return flags, kind, count, body_bytes, time_ms, checksum


def _body(stored: memoryview, body_bytes: int, flags: int) -> memoryview:
    if not flags & _ZSTD:
        body = stored
    else:
        try:
            body = memoryview(zstd.ZstdDecompressor().decompress(stored, max_length=body_bytes + 1))
        except zstd.ZstdError as error:
            raise CorruptBatch(f"A batch cannot be decompressed: {error}.") from error
    if len(body) != body_bytes:
        raise CorruptBatch(f"The body of a batch has {len(body)} bytes instead of {body_bytes}.")
    return body


# The parts of a body are read one after the other: each function returns a part, and where the next one begins.


def _take(body: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    part = body[at : at + size]
    if len(part) != size:
        raise CorruptBatch("A column of a batch is longer than the batch.")
    return part, at + size + -size % 8


def _read_column(body: memoryview, at: int, count: int) -> tuple[BinaryColumn, int]:
    part, at = _take(body, at, (count + 1) * 4)
    offsets = part.cast("i")
    ends = offsets.tolist()
    if ends[0] != 0 or ends != sorted(ends):
        raise CorruptBatch("The offsets of a batch do not ascend.")
    data, at = _take(body, at, ends[-1])
    return BinaryColumn(None, offsets, data), at


def _read_nullable_column(body: memoryview, at: int, count: int) -> tuple[BinaryColumn, int]:
    validity, at = _take(body, at, (count + 7) // 8)
    column, at = _read_column(body, at, count)
    return column._replace(validity=validity), at


def _check_end(body: memoryview, at: int) -> None:
    if at < len(body):
        raise CorruptBatch("A batch is longer than its columns.")


def _parts(column: BinaryColumn) -> list[Part]:
    _check_size(column.data.nbytes)
    return [column.offsets, column.data]


def _all_valid(count: int) -> bytes:
    return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES // 2:
        raise PayloadTooLarge(f"A batch of {size} bytes is too large; append fewer messages at once.")


def _binary_column(cells: Sequence[bytes]) -> list[bytes]:
    data = b"".join(cells)
    _check_size(len(data))
    return [struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, cells), initial=0)), data]


def _nullable_column(cells: Sequence[bytes | None]) -> list[bytes]:
    bits = sum(1 << index for index, cell in enumerate(cells) if cell is not None)
    validity = bits.to_bytes((len(cells) + 7) // 8, "little")
    return [validity, *_binary_column([b"" if cell is None else cell for cell in cells])]


def _seal(flags: int, count: int, kind: Kind, time_ms: int, parts: Sequence[Part], *, compress: bool) -> bytes:
    pieces: list[Part] = []
    body_bytes = 0
    for part in parts:
        size = len(part)
        padding = -size % 8
        pieces += (part, _PADDING[:padding]) if padding else (part,)
        body_bytes += size + padding
    if compress:
        packed = zstd.compress(b"".join(pieces))
        if len(packed) < body_bytes:
            flags |= _ZSTD
            pieces = [packed]
    head = _HEADER.pack(MAGIC, VERSION, flags, count, body_bytes, kind, time_ms, 0, 0)[:_CRC_AT]
    checksum = crc32(head)
    for piece in pieces:
        checksum = crc32(piece, checksum)
    return b"".join((head, checksum.to_bytes(4, "little"), *pieces))


def decode_headers(cell: bytes | None) -> Mapping[str, str] | None:
    if cell is None:
        return None
    try:
        return _headers_decoder.decode(cell)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"The headers of a message cannot be read: {error}.") from error


if sys.byteorder != "little":  # pragma: no cover - no such machine is supported by Arrow's users here
    raise ImportError("onebus stores little-endian batches and runs on little-endian machines only")
