"""What a request says: numbers in its query, JSON in its body, and whether its client still waits."""

import asyncio
from collections.abc import Coroutine
from math import isfinite
from typing import Any, TypeVar

import msgspec

from onebus.errors import InvalidArgument
from onebus.objects.dispenser import Held
from onebus.objects.workqueue import WorkQueue
from onebus.web.request import ClientGone, Request

T = TypeVar("T")


def number(request: Request, name: str) -> float | None:
    """Return a number of the query, or None if there is none.

    Raises:
        InvalidArgument: it is not a number.
    """
    if not request.query:
        return None
    text = request.parameters.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InvalidArgument(f"{name} must be a number, but is {text[:40]!r}.")
    return value


def whole_number(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number of the query within bounds.

    Raises:
        InvalidArgument: it is something else.
    """
    value = number(request, name)
    if value is None:
        return default
    if not value.is_integer() or not least <= value <= most:
        raise InvalidArgument(f"{name} must be a whole number from {least} to {most}, but is {value:g}.")
    return int(value)


def content(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Return what a body says.

    Raises:
        InvalidArgument: it says something else than what is expected.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"The body is not the JSON that is expected here: {error}.") from None


async def taken_by(request: Request, queue: WorkQueue, taking: Coroutine[Any, Any, list[Held]]) -> list[Held]:
    """Return the messages that a client waits for.

    Raises:
        ClientGone: the client does not wait any more; what was taken for it went back.
    """
    takes = asyncio.create_task(taking, name="onebus-takes")
    leaves = asyncio.create_task(_departure(request), name="onebus-leaves")
    try:
        await asyncio.wait((takes, leaves), return_when=asyncio.FIRST_COMPLETED)
        if leaves.done():
            if takes.done() and takes.exception() is None:
                queue.give_back(takes.result())
            raise ClientGone("The client went away while it waited.")
        return takes.result()
    finally:
        for task in (takes, leaves):
            task.cancel()


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
