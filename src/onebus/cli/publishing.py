"""Publishing what a command is given, piece by piece, with one line of output for each."""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from onebus.cli.input import data_of, pieces, place
from onebus.cli.output import print_error
from onebus.cli.shown import object_line
from onebus.cli.stdout import Stdout
from onebus.errors import InvalidArgument

Publish = Callable[[Any], Awaitable[int]]


async def publish_pieces(given: Sequence[str] | None, publish: Publish, *, as_json: bool, answer: str) -> bool:
    """Publish arguments, or the lines of stdin as they come, and print the number that each of them gave.

    With ``as_json`` it is printed as an object, under the name `answer`. What cannot be published is reported; returns
    whether everything could.
    """
    stdout = Stdout()
    number, is_good = 0, True

    def refuse(error: InvalidArgument, number: int) -> None:
        nonlocal is_good
        print_error(error, place(number, given))
        is_good = False

    async for some in pieces(given):
        published: deque[tuple[int, Awaitable[int]]] = deque()
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
                    await stdout.write(object_line({answer: value}) if as_json else b"%d" % value)
        finally:
            # What a failure leaves behind was not begun, and nobody shall wonder about that.
            for _, receipt in published:
                if inspect.iscoroutine(receipt):
                    receipt.close()
    return is_good
