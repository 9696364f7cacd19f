"""Those who were answered together travel together again."""

import asyncio
from contextlib import ExitStack

from onebus.objects.lull import Lull


async def waits(lull: Lull) -> bool:
    """Return whether somebody who leaves now has to wait for others."""
    leaving = asyncio.create_task(lull.come())
    await asyncio.sleep(0)
    is_waiting = not leaving.done()
    leaving.cancel()
    return is_waiting


async def test_who_travels_alone_never_waits() -> None:
    lull = Lull()

    for _ in range(3):
        with lull:
            assert not await waits(lull)


async def test_all_who_were_answered_together_are_waited_for() -> None:
    lull = Lull()
    with lull, lull:
        pass

    with ExitStack() as here:
        here.enter_context(lull)
        assert await waits(lull)
        here.enter_context(lull)
        assert not await waits(lull)


async def test_who_does_not_come_back_is_waited_for_once() -> None:
    lull = Lull()
    with lull:
        pass

    assert await waits(lull)
    await lull.come()
    assert not await waits(lull)
