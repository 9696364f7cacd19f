import asyncio
import signal

from onebus.stores import create_store
from onebus.stores.base import Store
from tests.eventually import eventually
from tests.faults.program import running_program
from tests.faults.programs import BATCH_SIZE
from tests.messages import batch_of, claimed_ids, numbered, texts_by_id


async def all_texts(store: Store, log: str) -> dict[int, str]:
    texts: dict[int, str] = {}
    while batches := (await store.read(log, after=max(texts, default=0))).batches:
        texts |= texts_by_id(batches)
    return texts


def whole_batches(texts: dict[int, str]) -> dict[str, int]:
    """Return the first id of each batch, having checked that none is incomplete or mixed with another."""
    firsts: dict[str, int] = {}
    ids = sorted(texts)
    assert ids == list(range(1, len(ids) + 1))
    assert len(ids) % BATCH_SIZE == 0
    for start in range(1, len(ids) + 1, BATCH_SIZE):
        parts = [texts[start + offset].rsplit(":", 1) for offset in range(BATCH_SIZE)]
        assert {batch for batch, _ in parts} == {parts[0][0]}
        assert [int(part) for _, part in parts] == list(range(BATCH_SIZE))
        assert parts[0][0] not in firsts
        firsts[parts[0][0]] = start
    return firsts


async def test_a_writer_killed_in_the_middle_leaves_whole_batches_in_both_logs(url: str, log: str) -> None:
    for round_ in range(3):
        async with running_program("append_for_ever", url, f"{log}{round_}") as writer:
            await writer.said("stored", 10 + 7 * round_)
            await writer.kill()

        async with create_store(url) as store:
            channel = whole_batches(await all_texts(store, f"{log}{round_}|/channel"))
            site = whole_batches(await all_texts(store, f"{log}{round_}|"))
        acknowledged = {line[1]: int(line[2]) for line in writer.lines if line[0] == "stored"}
        assert acknowledged.items() <= channel.items()
        assert channel == site


async def test_the_messages_of_a_killed_lease_holder_come_back_after_the_lease_in_order(url: str, log: str) -> None:
    async with create_store(url) as store:
        await store.append(log, numbered(20))
        async with running_program("hold_a_lease", url, log) as holder:
            await holder.line("claimed")
            await store.append(log, numbered(3, start=21))
            await holder.kill()

        first = await store.claim(log, limit=100, lease_seconds=60)
        assert claimed_ids(first) == [21, 22, 23]

        async def claim_again() -> list[int]:
            return list(claimed_ids(await store.claim(log, limit=7, lease_seconds=60)))

        assert await eventually(claim_again) == list(range(1, 8))
        assert await claim_again() == list(range(8, 15))


async def test_a_frozen_lease_holder_cannot_settle_what_others_took(url: str, log: str) -> None:
    async with create_store(url) as store:
        await store.append(log, numbered(5))
        async with running_program("hold_a_lease", url, log) as holder:
            await holder.line("claimed")
            holder.signal(signal.SIGSTOP)

            async def claim_again() -> list[int]:
                return list(claimed_ids(await store.claim(log, limit=5, lease_seconds=60)))

            assert await eventually(claim_again) == [1, 2, 3, 4, 5]


async def test_a_follower_in_another_process_is_woken_by_an_append(url: str, log: str) -> None:
    async with create_store(url) as store, running_program("follow_for_ever", url, log) as follower:
        await follower.line("ready")

        for number in range(20):
            heard = len(follower.lines)
            await store.append(log, batch_of(f"message-{number}"))
            assert await follower.line("seen", after=heard) == ["seen", f"message-{number}"]


async def test_ten_processes_may_start_on_a_new_store_at_once(new_url: str, log: str) -> None:
    async def start() -> int:
        async with running_program("open_and_close", new_url, log) as program:
            assert await program.wait() == 0
            return int(program.lines[0][1])

    assert sorted(await asyncio.gather(*(start() for _ in range(10)))) == list(range(1, 11))
