"""Publishing what a command is given, piece by piece, with one line of output for each."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from onebus.cli.input import data_of, pieces, place
from onebus.cli.output import print_error
from onebus.cli.shown import object_line
from onebus.cli.stdout import Stdout
from onebus.errors import InvalidArgument

T = TypeVar("T")


async def publish_pieces(
    given: Sequence[str] | None, publish: Callable[[Any], Awaitable[T]], *, as_json: bool, line: Callable[[T], bytes]
) -> bool:
    """Publish arguments, or the lines of stdin as they come, and print a line for what each of them gave.

    What cannot be published is reported; returns whether everything could.
    """
    stdout = Stdout()
    number, is_good = 0, True

    def refuse(error: InvalidArgument, number: int) -> None:
        nonlocal is_good
        print_error(error, place(number, given))
        is_good = False

    async for some in pieces(given):
        published: deque[tuple[int, Awaitable[T]]] = deque()
        for piece in some:
            number += 1
            try:
                published.append((number, publish(data_of(piece, is_json=as_json))))
            except InvalidArgument as error:
                refuse(error, number)
        try:
            while published:
                which, receipt = published.popleft()
                try:
                    value = await receipt
                except InvalidArgument as error:
                    refuse(error, which)
                else:
                    await stdout.write(line(value))
        finally:
            # What a failure leaves behind was not begun, and nobody shall wonder about that.
            for _, receipt in published:
                if inspect.iscoroutine(receipt):
                    receipt.close()
                elif isinstance(receipt, asyncio.Future):
                    receipt.cancel()
    return is_good


def number_line(name: str, *, as_json: bool) -> Callable[[int], bytes]:
    """Return what writes a number as a line: by itself, or as JSON under a name."""
    return (lambda number: object_line({name: number})) if as_json else (lambda number: b"%d" % number)
