"""What a command is given to send: its arguments, or the lines of stdin as they come."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from onebus.errors import InvalidArgument

STDIN: Final = 0
READ_BYTES: Final = 64 * 1024
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""A longer line is cut off here: no message may be so long, and memory is finite."""


async def pieces(arguments: Sequence[str] | None) -> AsyncIterator[list[bytes]]:
    """Yield the arguments, or, if there are none, the lines of stdin that arrived together, without their ends."""
    if arguments is not None:
        yield [os.fsencode(argument) for argument in arguments]
        return
    pending = bytearray()
    while piece := await _read(STDIN):
        *whole, rest = piece.split(b"\n")
        if whole:
            whole[0] = bytes(pending) + whole[0]
            pending.clear()
            yield whole
        if len(pending) <= MAX_LINE_BYTES:
            pending += rest
    # The last line may lack its end.
    if pending:
        yield [bytes(pending)]


def data_of(piece: bytes, *, is_json: bool) -> Any:
    """Return the data that a piece stands for: what it is as JSON, or text, or bytes if it is not UTF-8.

    Raises:
        InvalidArgument: it is not JSON.
    """
    if is_json:
        try:
            return msgspec.json.decode(piece)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"Not JSON: {error}.") from None
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return piece


def place(number: int, arguments: Sequence[str] | None) -> str:
    """Return where a piece comes from, in words."""
    return f"line {number}" if arguments is None else f"message {number}"


async def _read(descriptor: int) -> bytes:
    # Not in a thread: one that waits for input could not be interrupted.
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A file is always readable.
        return os.read(descriptor, READ_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)
