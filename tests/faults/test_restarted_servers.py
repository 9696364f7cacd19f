import asyncio

import pytest

from onebus.errors import StoreUnavailable
from onebus.stores import create_store
from onebus.stores.base import StoreOptions
from tests.eventually import eventually
from tests.faults.conftest import AnyServer
from tests.faults.program import Program, running_program
from tests.faults.test_killed_processes import all_texts, whole_batches
from tests.messages import batch_of, numbered


def claimed(consumer: Program) -> set[int]:
    return {int(id_) for line in consumer.lines if line[0] == "claimed" for id_ in line[1:]}


async def test_a_restart_in_mid_stream_loses_nothing_that_was_acknowledged(server: AnyServer, log: str) -> None:
    channel = f"{log}|/channel"
    async with (
        running_program("append_for_ever", server.url, log) as writer,
        running_program("consume_for_ever", server.url, f"{log}|") as consumer,
    ):
        await writer.said("stored", 20)
        await consumer.line("claimed")
        for fault in (server.restart, server.kill):
            stored = sum(line[0] == "stored" for line in writer.lines)
            claims = len(consumer.lines)
            await asyncio.to_thread(fault)
            if fault == server.kill:
                await asyncio.to_thread(server.start)
                await asyncio.to_thread(server.wait_ready)

            await writer.said("stored", stored + 20, deadline_seconds=60)
            await consumer.line("claimed", after=claims, deadline_seconds=60)
        await writer.kill()

        async with create_store(server.url) as store:
            stat = await store.stat(f"{log}|")
            assert stat is not None
            last_id = stat.last_id

            async def all_claimed() -> bool:
                return len(claimed(consumer)) == last_id

            await eventually(all_claimed, deadline_seconds=60)
            firsts = whole_batches(await all_texts(store, channel))

    acknowledged = {line[1]: int(line[2]) for line in writer.lines if line[0] == "stored"}
    assert acknowledged.items() <= firsts.items()
    assert claimed(consumer) == set(range(1, last_id + 1))


async def test_an_idle_store_survives_a_restart_of_its_server(server: AnyServer, log: str) -> None:
    async with create_store(server.url) as store:
        await store.append(log, numbered(1))
        async with store.watch(log) as watch:
            await asyncio.to_thread(server.restart)

            async def is_stored() -> bool:
                try:
                    await store.append(log, batch_of("after"))
                except StoreUnavailable:
                    return False
                return True

            await eventually(is_stored)
            assert await watch.wait(10)


async def test_the_store_tells_when_it_goes_and_when_it_comes_back(server: AnyServer, log: str) -> None:
    async with create_store(server.url, StoreOptions(deadline_seconds=1)) as store:
        changes: list[bool] = []
        store.health.on_change(changes.append)
        async with store.watch(log):
            await asyncio.to_thread(server.stop)

            async def is_away() -> bool:
                try:
                    await store.stat(log)
                except StoreUnavailable:
                    return True
                return False

            await eventually(is_away)
            assert changes == [False]
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(server.wait_ready)

            async def is_back() -> bool:
                return store.health.is_online

            await eventually(is_back)
            assert await store.stat(log) is None
            assert changes == [False, True]


async def test_a_call_waits_for_an_absent_server_up_to_its_deadline(server: AnyServer, log: str) -> None:
    async with create_store(server.url, StoreOptions(deadline_seconds=0.5)) as store:
        await asyncio.to_thread(server.stop)
        loop = asyncio.get_running_loop()
        begun = loop.time()

        while loop.time() < begun + 1.5:
            called = loop.time()
            with pytest.raises(StoreUnavailable, match="Check that it runs"):
                await store.append(log, numbered(1))
            assert loop.time() - called < 1.0


async def test_a_frozen_server_costs_a_call_its_deadline_and_no_more(server: AnyServer, log: str) -> None:
    async with create_store(server.url, StoreOptions(deadline_seconds=1)) as store:
        await store.append(log, numbered(1))
        server.freeze()
        try:
            async with asyncio.timeout(5):
                with pytest.raises(StoreUnavailable, match="did not answer within 1"):
                    await store.append(log, numbered(1))
        finally:
            server.thaw()

        async def answers() -> bool:
            try:
                return await store.stat(log) is not None
            except StoreUnavailable:
                return False

        await eventually(answers)
