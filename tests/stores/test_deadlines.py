"""Calls that must end in time."""

import asyncio

import pytest

from onebus.stores.deadlines import Deadlines


async def call(deadlines: Deadlines, seconds: float) -> str:
    with deadlines.one():
        await asyncio.sleep(seconds)
    return "done"


async def test_a_call_that_takes_too_long_ends_with_a_time_out() -> None:
    with pytest.raises(TimeoutError):
        await call(Deadlines(0.01), 60)


async def test_each_call_has_the_whole_time_whenever_it_began() -> None:
    deadlines = Deadlines(1.0)
    late = [asyncio.create_task(call(deadlines, 60))]
    await call(deadlines, 0.5)
    late.append(asyncio.create_task(call(deadlines, 60)))

    assert await call(deadlines, 0.6) == "done"
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError, TimeoutError]


async def test_a_task_whose_call_timed_out_goes_on_undisturbed() -> None:
    deadlines = Deadlines(0.01)

    async def try_twice() -> str:
        with pytest.raises(TimeoutError):
            await call(deadlines, 60)
        return await call(deadlines, 0)

    assert await asyncio.create_task(try_twice()) == "done"


async def test_a_call_that_is_cancelled_by_somebody_else_stays_cancelled() -> None:
    deadlines = Deadlines(60)
    running = asyncio.create_task(call(deadlines, 60))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    deadlines.stop()


async def test_a_call_that_is_cancelled_as_its_time_ends_stays_cancelled() -> None:
    deadlines = Deadlines(0.01)

    async def stubborn() -> None:
        with deadlines.one():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                running.cancel()
                raise

    running = asyncio.create_task(stubborn())
    with pytest.raises(asyncio.CancelledError):
        await running


def test_deadlines_that_were_stopped_watch_again_in_another_loop() -> None:
    deadlines = Deadlines(0.05)

    async def once() -> None:
        assert await call(deadlines, 0) == "done"
        deadlines.stop()

    async def again() -> None:
        with pytest.raises(TimeoutError):
            await call(deadlines, 60)

    asyncio.run(once())
    asyncio.run(again())
