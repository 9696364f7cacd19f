"""Notices when a client goes away, when its time is over, and when it does not read what it is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from onebus.web.feeds.listener import Listener
from onebus.web.lane import lane_of
from onebus.web.request import Request

READ_SECONDS: Final = 10.0
"""How long a client may take to read the rest before it is given up."""


@asynccontextmanager
async def attended(request: Request, listener: Listener, seconds: float | None = None) -> AsyncIterator[None]:
    """End a listener when its client is gone or its time is over, and this block if that does not help."""
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    was_given_up = False

    def give_up() -> None:
        nonlocal was_given_up
        was_given_up = True
        if this is not None:
            this.cancel()

    def end() -> None:
        listener.end()
        timers.append(loop.call_later(READ_SECONDS, give_up))

    timers = [] if seconds is None else [loop.call_later(seconds, end)]
    lane = lane_of(request.scope)
    watching = None
    if lane is not None:
        lane.when_gone(listener.end)
    else:
        watching = asyncio.create_task(_wait_for_departure(request, listener))
    try:
        yield
    except asyncio.CancelledError:
        if not was_given_up or this is None:
            raise
        this.uncancel()
    finally:
        for timer in timers:
            timer.cancel()
        if watching is not None:
            watching.cancel()


async def _wait_for_departure(request: Request, listener: Listener) -> None:
    """End a listener when its client is gone. Whatever it still sends is of no interest."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    listener.end()
