import asyncio

from onebus.log.stored import Twin
from onebus.stores.base import Store
from onebus.stores.following import claimant, follow
from tests.eventually import eventually
from tests.messages import batch_of, claimed_texts, numbered, texts_of


async def test_a_signal_reaches_every_client_that_listens(store: Store, other_store: Store, log: str) -> None:
    async with store.listen(log) as mine, other_store.listen(log) as theirs, other_store.listen(log) as theirs_too:
        receivers = await store.signal(log, b"\0hello")

        async with asyncio.timeout(10):
            assert [await anext(one) for one in (mine, theirs, theirs_too)] == [b"\0hello"] * 3
        assert receivers == 2


async def test_a_signal_that_nobody_hears_reaches_nobody(store: Store, log: str) -> None:
    async with store.listen(f"{log}:other"):
        assert await store.signal(log, b"hello") == 0


async def test_signals_of_one_caller_arrive_in_order_and_once(store: Store, other_store: Store, log: str) -> None:
    async with other_store.listen(log) as signals:
        for number in range(50):
            await store.signal(log, b"%d" % number)

        async with asyncio.timeout(10):
            assert [await anext(signals) for _ in range(50)] == [b"%d" % number for number in range(50)]


async def test_whoever_stopped_listening_hears_nothing(store: Store, other_store: Store, log: str) -> None:
    async with other_store.listen(log):
        pass

    async def nobody_listens() -> bool:
        return await store.signal(log, b"hello") == 0

    await eventually(nobody_listens)


async def test_a_large_signal_arrives_whole(store: Store, other_store: Store, log: str) -> None:
    payload = bytes(range(256)) * 200
    async with other_store.listen(log) as signals:
        await store.signal(log, payload)

        async with asyncio.timeout(10):
            assert await anext(signals) == payload


async def test_an_append_wakes_those_who_watch_the_log(store: Store, other_store: Store, log: str) -> None:
    async with other_store.watch(log) as watch:
        await watch.wait(0.01)
        await store.append(log, numbered(1))

        assert await watch.wait(10)


async def test_a_mirrored_append_wakes_those_who_watch_the_mirror(store: Store, other_store: Store, log: str) -> None:
    async with other_store.watch(f"{log}|") as watch:
        await watch.wait(0.01)
        await store.append(f"{log}|/chat", numbered(1), mirror=f"{log}|")

        assert await watch.wait(10)


async def test_a_release_wakes_those_who_watch_the_log(store: Store, other_store: Store, log: str) -> None:
    await store.append(log, numbered(1))
    claim = await store.claim(log, limit=1, lease_seconds=30)
    async with other_store.watch(log) as watch:
        await watch.wait(0.01)
        await store.release(log, claim.leases)

        assert await watch.wait(10)


async def test_a_follower_sees_what_was_there_and_what_comes(store: Store, other_store: Store, log: str) -> None:
    await store.append(log, batch_of("old"))
    slices = follow(other_store, log, after=0)
    async with asyncio.timeout(10):
        assert texts_of(await anext(slices)) == ["old"]
        waiting = asyncio.ensure_future(anext(slices))

        await store.append(log, batch_of("new"))

        assert texts_of(await waiting, after=1) == ["new"]
    await slices.aclose()


async def test_a_follower_sees_small_and_large_batches_once_and_in_order(
    store: Store, other_store: Store, log: str
) -> None:
    await store.append(log, batch_of("0"))
    slices = follow(other_store, log, after=0)
    seen: list[str] = []

    async def append_all() -> None:
        for number in range(1, 60):
            padding = "x" * (6000 if number % 7 == 0 else 10)
            await store.append(log, batch_of(*(f"{number} {padding}" for _ in range(1 + number % 3))))

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(append_all())
        after = 0
        while after < 1 + sum(1 + number % 3 for number in range(1, 60)):
            found = await anext(slices)
            seen += [text.split()[0] for text in texts_of(found, after=after)]
            after = found.batches[-1].last_id
    await slices.aclose()

    assert seen == ["0", *(str(number) for number in range(1, 60) for _ in range(1 + number % 3))]


async def test_a_follower_of_a_mirror_learns_where_each_batch_comes_from(
    store: Store, other_store: Store, log: str
) -> None:
    channel, site = f"{log}|/a chat room", f"{log}|"
    await store.append(channel, batch_of("first"), mirror=site)
    slices = follow(other_store, site, after=0)
    async with asyncio.timeout(20):
        await anext(slices)
        for number in range(2, 12):
            waiting = asyncio.ensure_future(anext(slices))
            await store.append(channel, batch_of(str(number)), mirror=site)

            (batch,) = (await waiting).batches
            assert (batch.first_id, batch.twin) == (number, Twin(channel, number))
    await slices.aclose()


async def test_a_follower_is_not_confused_by_a_log_that_begins_again(
    store: Store, other_store: Store, log: str
) -> None:
    await store.append(log, batch_of("old"))
    slices = follow(other_store, log, after=0)
    async with asyncio.timeout(20):
        first = await anext(slices)
        waiting = asyncio.ensure_future(anext(slices))
        await asyncio.sleep(0)
        await store.drop(log)
        await store.append(log, batch_of("new 1", "new 2"))
        second = await waiting

    assert texts_of(second, after=1) == ["new 2"]
    assert second.epoch not in ("", first.epoch)
    await slices.aclose()


async def test_a_claimant_waits_for_messages_and_settles_them(store: Store, other_store: Store, log: str) -> None:
    async with claimant(other_store, log) as consumer, asyncio.timeout(10):
        waiting = asyncio.ensure_future(consumer.next())
        await store.append(log, batch_of("work"))
        claim = await waiting
        assert claimed_texts(claim) == ["work"]
        consumer.done(claim.leases)

    stat = await store.stat(log)
    assert stat is not None
    assert (stat.claimable, stat.held) == (0, 0)


async def test_who_listens_again_at_once_is_not_signed_off_by_the_end_before(store: Store, log: str) -> None:
    for number in range(5):
        entered = asyncio.Event()

        async def listen_and_leave(entered: asyncio.Event) -> None:
            async with store.listen(log):
                entered.set()

        leaving = asyncio.create_task(listen_and_leave(entered))
        await entered.wait()
        await asyncio.sleep(0)
        async with store.listen(log) as signals, asyncio.timeout(20):
            await leaving
            await store.signal(log, b"%d" % number)
            assert await anext(signals) == b"%d" % number


async def test_many_may_signal_and_ask_at_once(store: Store, log: str) -> None:
    signals = [store.signal(log, b"x") for _ in range(100)]
    questions = [store.stat(log) for _ in range(100)]

    answers = await asyncio.gather(*signals, *questions)

    assert answers[:100] == [0] * 100
