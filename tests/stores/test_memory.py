"""What is particular to the memory: the threads of one process may share it."""

import asyncio
import threading
from uuid import uuid4

from onebus.log.batch import Entry, encode
from onebus.stores import create_store


async def test_threads_with_loops_of_their_own_share_a_memory() -> None:
    url, threads, batches = f"memory://{uuid4().hex}", 4, 500
    batch = encode([Entry(b"x")] * 3, now_ms=1)
    ids: list[int] = []

    async def append() -> None:
        async with create_store(url) as store:
            ids.extend([await store.append("log", batch) for _ in range(batches)])

    async with create_store(url) as store:
        running = [threading.Thread(target=asyncio.run, args=[append()]) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            await asyncio.to_thread(thread.join)
        stat = await store.stat("log")

    assert sorted(ids) == list(range(1, 3 * threads * batches, 3))
    assert stat is not None
    assert stat.last_id == 3 * threads * batches


async def test_a_reader_in_another_thread_is_woken_and_hears_signals() -> None:
    url = f"memory://{uuid4().hex}"
    ready, heard = threading.Event(), list[object]()

    async def listen() -> None:
        async with create_store(url) as store, store.watch("log") as watch, store.listen("news") as payloads:
            ready.set()
            heard.append(await watch.wait(20))
            heard.append(await anext(payloads))

    async with create_store(url) as store:
        thread = threading.Thread(target=asyncio.run, args=[listen()])
        thread.start()
        await asyncio.to_thread(ready.wait)
        await store.append("log", encode([Entry(b"x")], now_ms=1))
        assert await store.signal("news", b"hello") == 1
        await asyncio.to_thread(thread.join)

    assert heard == [True, b"hello"]
