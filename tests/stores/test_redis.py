"""What is special to Redis; everything else is in tests/contract."""

import asyncio
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from onebus.errors import (
    AccessDenied,
    CorruptBatch,
    InvalidUrl,
    MissingDriver,
    StagingLost,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from onebus.log.batch import decode
from onebus.log.retention import Retention
from onebus.stores import create_store
from onebus.stores.base import Finding, Slice, Store, StoreOptions, Verdict
from onebus.stores.following import follow
from onebus.stores.redis.address import Address, Login, Mode, parse_address
from onebus.stores.redis.names import log_keys, record_key
from onebus.stores.redis.store import RedisStore
from tests.clock import FakeClock
from tests.conftest import running
from tests.eventually import eventually
from tests.messages import batch_of, claimed_ids, claimed_texts, numbered, stat_of, texts_by_id, texts_of
from tests.services import RedisCluster, RedisSentinel, RedisServer

pytestmark = pytest.mark.xdist_group("redis-only")


@pytest.fixture
def log() -> str:
    return f"log:{uuid4().hex}"


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may harm."""
    with running(RedisServer(append_only=True)) as server:
        yield server


@asynccontextmanager
async def opened(url: str, options: StoreOptions | None = None) -> AsyncIterator[Store]:
    async with create_store(url, options) as store:
        yield store


def ask(server: RedisServer, *command: str | bytes | int) -> Any:
    with server.client() as client:
        return client.execute_command(*command)


async def is_online(store: Store) -> None:
    async def online() -> bool:
        return store.health.is_online

    await eventually(online)


async def is_offline(store: Store) -> None:
    async def offline() -> bool:
        return not store.health.is_online

    await eventually(offline)


# Addresses


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://example.org", Address(Mode.SINGLE, (("example.org", 6379),))),
        ("redis://[::1]:7000/3", Address(Mode.SINGLE, (("::1", 7000),), database=3)),
        ("redis://:p%40ss@h", Address(Mode.SINGLE, (("h", 6379),), login=Login(None, "p@ss"))),
        ("redis+sentinel://a,b:1/main/2", Address(Mode.SENTINEL, (("a", 26379), ("b", 1)), 2, "main")),
        ("redis+cluster://u:p@a:1,b:2", Address(Mode.CLUSTER, (("a", 1), ("b", 2)), login=Login("u", "p"))),
        (
            "rediss+cluster://a?ssl_ca_certs=/ca.crt&ssl_cert_reqs=none",
            Address(Mode.CLUSTER, (("a", 6379),), uses_tls=True, ca_file="/ca.crt", checks_certificate=False),
        ),
    ],
)
def test_a_url_says_where_redis_is(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis:host",
        "redis://:secret@",
        "redis://secret@host",
        "redis://:secret@a,b",
        "redis://:secret@host:port",
        "redis://:secret@host:70000",
        "redis://:secret@host/zero",
        "redis://:secret@host/1/2",
        "redis://:secret@host?ssl_cert_reqs=none",
        "rediss://:secret@host?ssl_cert_reqs=perhaps",
        "redis+sentinel://:secret@host",
        "redis+sentinel://host/name?sentinel_password=secret&x=1",
        "redis+cluster://:secret@host/1",
    ],
)
def test_a_bad_url_is_refused_with_a_remedy_and_without_its_password(url: str) -> None:
    with pytest.raises(InvalidUrl, match=r"Write redis.*://") as caught:
        create_store(url)

    assert "secret" not in str(caught.value)


def test_the_url_that_a_store_shows_has_no_password() -> None:
    store = RedisStore("rediss+sentinel://user:secret@a:1,[::1]:2/main/3?sentinel_password=secret2")

    assert store.url == "rediss+sentinel://a:1,[::1]:2/main/3"
    assert "secret" not in repr(store._address)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("onebus.stores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(MissingDriver, match=r"pip install 'onebus\[redis\]'"):
        create_store("redis://localhost")


# Getting in


async def test_a_password_lets_in_and_a_wrong_one_does_not(log: str) -> None:
    with running(RedisServer(password="s3cret/:@")) as server:
        async with opened(server.url) as store:
            assert await store.append(log, numbered(1)) == 1

        for wrong in ("wr0ng@", ""):
            with pytest.raises(AccessDenied, match="password") as caught:
                await create_store(f"redis://{wrong and ':' + wrong}127.0.0.1:{server.port}").open()
            assert "wr0ng" not in str(caught.value)


async def test_a_user_without_permission_is_told_so(own_redis: RedisServer, log: str) -> None:
    ask(own_redis, "ACL", "SETUSER", "guest", "on", ">pw", "~*", "+ping")
    ask(own_redis, "ACL", "SETUSER", "reader", "on", ">pw", "~*", "&other", "+@all", "-xadd")

    with pytest.raises(AccessDenied, match="permissions"):
        await create_store(f"redis://guest:pw@127.0.0.1:{own_redis.port}").open()
    async with opened(f"redis://reader:pw@127.0.0.1:{own_redis.port}") as store:
        with pytest.raises(AccessDenied, match="permissions"):
            await store.append(log, numbered(1))
        with pytest.raises(AccessDenied, match="permissions"):
            async with store.watch(log):
                pass
        assert await store.stat(log) is None


async def test_tls(log: str) -> None:
    with running(RedisServer(tls=True)) as server:
        async with opened(f"{server.url}?ssl_ca_certs={server.ca_file}") as store, store.watch(log) as watch:
            await store.append(log, batch_of("x" * 1_000_000))

            assert await watch.wait(10)
            assert texts_of(await store.read(log, after=0)) == ["x" * 1_000_000]
        async with opened(f"{server.url}?ssl_cert_reqs=none") as store:
            assert await store.stat(log) is not None
        with pytest.raises(StoreUnavailable, match="certificate"):
            await create_store(server.url).open()


async def test_two_databases_do_not_see_each_other(redis: RedisServer, log: str) -> None:
    async with opened(f"{redis.url}/1") as one, opened(f"{redis.url}/2") as two, two.watch(log) as watch:
        await watch.wait(0.01)
        await one.append(log, numbered(1))
        await one.put(log, {"a": b"1"})

        async with two.listen(log):
            assert await one.signal(log, b"") == 0
        assert not await watch.wait(0.1)
        assert await two.stat(log) is None
        assert await two.get(log) is None
        assert await two.list_logs(log) == []
        assert redis.client().keys(f"*{log}*") == []


# Being away


@pytest.mark.parametrize("kind", ["redis", "redis+sentinel", "redis+cluster"])
async def test_a_server_that_is_down_at_the_start_is_told_quickly(kind: str) -> None:
    server = RedisServer()
    store = create_store(f"{kind}://127.0.0.1:{server.port}{'/main' if 'sentinel' in kind else ''}")

    async with asyncio.timeout(3):
        with pytest.raises(StoreUnavailable, match="Check that it runs"):
            await store.open()
    server.close()


async def test_a_frozen_server_is_unavailable_after_the_deadline(own_redis: RedisServer, log: str) -> None:
    async with opened(own_redis.url, StoreOptions(deadline_seconds=0.5)) as store:
        await store.append(log, numbered(1))
        own_redis.freeze()

        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable, match=r"0.5 s"):
                await store.append(log, numbered(1))

        own_redis.thaw()
        assert await store.append(log, numbered(1)) > 1


async def test_a_frozen_server_cannot_be_opened() -> None:
    with running(RedisServer(password="pw")) as server:
        server.freeze()

        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await create_store(server.url, StoreOptions(deadline_seconds=0.5)).open()


async def test_a_restart_loses_no_acknowledged_append_and_followers_go_on(own_redis: RedisServer, log: str) -> None:
    acknowledged: list[str] = []
    seen: dict[int, str] = {}
    stopped = asyncio.Event()

    async def produce(store: Store) -> None:
        number = 0
        while not stopped.is_set():
            number += 1
            try:
                await store.append(log, batch_of(str(number)))
            except StoreUnavailable:
                continue
            acknowledged.append(str(number))

    async def consume(store: Store) -> None:
        async for found in follow(store, log, after=0):
            seen.update(texts_by_id(found.batches))

    async def some_more() -> bool:
        return len(acknowledged) > before + 20

    async with opened(own_redis.url) as producer, opened(own_redis.url) as consumer, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(consume(consumer))
        tasks.create_task(produce(producer))
        for end in (own_redis.stop, own_redis.kill):
            before = len(acknowledged)
            await eventually(some_more)
            await asyncio.to_thread(end)
            own_redis.start()
            before = len(acknowledged)
            await eventually(some_more)
        stopped.set()

        async def all_seen() -> bool:
            return set(acknowledged) <= set(seen.values())

        await eventually(all_seen)
        following.cancel()
    assert list(seen) == list(range(1, len(seen) + 1))


async def test_closing_a_store_ends_the_calls_that_are_under_way(own_redis: RedisServer, log: str) -> None:
    store = create_store(own_redis.url)
    await store.open()
    own_redis.freeze()
    calls = [asyncio.create_task(store.append(log, numbered(1))) for _ in range(20)]
    await asyncio.sleep(0)

    await store.close()

    async with asyncio.timeout(2):
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable | StoreClosed) for one in ended)


async def test_the_first_call_after_a_restart_does_not_stumble_over_old_connections(log: str) -> None:
    with running(RedisServer(append_only=True)) as server:
        async with opened(server.url) as store:
            await asyncio.gather(*(store.append(f"{log}:{number}", numbered(1)) for number in range(5)))
            await asyncio.to_thread(server.restart)
            await is_online(store)

            appended = await asyncio.gather(*(store.append(f"{log}:{number}", numbered(1)) for number in range(5)))

        assert appended == [2] * 5


async def test_signals_are_not_doubled_and_watches_go_on_after_a_reconnect(own_redis: RedisServer, log: str) -> None:
    async with (
        opened(own_redis.url) as sender,
        opened(own_redis.url) as store,
        store.listen(log) as signals,
        store.watch(log) as watch,
    ):
        await watch.wait(0.01)
        for number in range(3):
            ask(own_redis, "CLIENT", "KILL", "TYPE", "pubsub")
            await is_offline(store)
            await is_online(store)
            assert await watch.wait(1)  # what was missed cannot be known

            assert await sender.signal(log, b"%d" % number) == 1
            await sender.append(log, numbered(1))
            assert await watch.wait(10)
        await sender.signal(log, b"end")

        async with asyncio.timeout(10):
            assert [await anext(signals) for _ in range(4)] == [b"0", b"1", b"2", b"end"]


async def test_who_stops_listening_while_the_store_is_away_is_not_subscribed_again(
    own_redis: RedisServer, log: str
) -> None:
    async with opened(own_redis.url) as store:
        async with store.listen(log):
            await asyncio.to_thread(own_redis.kill)
            await is_offline(store)
        own_redis.start()
        await is_online(store)

        assert await store.signal(log, b"") == 0


async def test_listening_again_and_again_misses_nothing(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:

        async def listen_once(number: int) -> None:
            async with store.listen(log) as signals:
                await store.signal(log, b"%d" % number)
                while await anext(signals) != b"%d" % number:
                    pass

        async with asyncio.timeout(20):
            for _ in range(20):
                await asyncio.gather(*(listen_once(number) for number in range(10)))
        assert await store.signal(log, b"") == 0


async def test_writes_go_on_after_a_sentinel_failover(log: str) -> None:
    with running(RedisSentinel()) as servers:
        async with opened(servers.url) as store, store.watch(log) as watch, store.listen(log) as signals:
            await store.append(log, numbered(1))
            await watch.wait(10)
            ask(servers.master, "WAIT", 1, 5000)
            servers.sentinels[0].freeze()  # the others know as well
            await asyncio.to_thread(servers.master.kill)

            assert await eventually(lambda: append_if_possible(store, log)) == 2
            assert await watch.wait(1)
            assert await store.signal(log, b"still here") == 1
            async with asyncio.timeout(10):
                assert await anext(signals) == b"still here"


async def append_if_possible(store: Store, log: str) -> int:
    try:
        return await store.append(log, numbered(1))
    except StoreUnavailable:
        return 0


async def test_a_master_that_became_a_replica_is_left(log: str) -> None:
    with running(RedisSentinel()) as servers:
        new_master: Any = servers.replica.client()
        async with opened(servers.url) as store:
            await store.append(log, numbered(1))
            ask(servers.sentinels[0], "SENTINEL", "FAILOVER", "onebus")

            async def another_rules() -> bool:
                try:
                    return bool(ask(servers.replica, "ROLE")[0] == b"master")
                except RedisConnectionError:
                    return False  # it closes its connections when it is promoted

            await eventually(another_rules)
            # The sentinels would do the same, in about ten seconds.
            ask(servers.master, "REPLICAOF", "127.0.0.1", servers.replica.port)
            first = await eventually(lambda: append_if_possible(store, log))

        ((newest, _),) = new_master.xrevrange(log_keys(log)[1], count=1)
        assert newest == f"{first}-0".encode()


async def test_a_cluster_without_one_of_its_nodes_heals_when_it_comes_back(log: str) -> None:
    with running(RedisCluster()) as servers:
        async with opened(servers.url) as store:
            logs = [f"{log}:{number}" for number in range(12)]
            await asyncio.gather(*(store.append(one, numbered(1)) for one in logs))
            lost = servers.nodes[1]
            await asyncio.to_thread(lost.kill)
            with pytest.raises(StoreUnavailable):
                await asyncio.gather(*(store.append(one, numbered(1)) for one in logs))
            assert not store.health.is_online

            lost.start()

            await asyncio.gather(*(eventually(lambda one=one: append_if_possible(store, one)) for one in logs))  # type: ignore[misc]


async def test_a_cluster_that_is_taken_for_a_single_server_is_told_apart(redis_cluster: RedisCluster) -> None:
    async with opened(redis_cluster.nodes[0].url) as store:
        with pytest.raises(StoreError, match=r"redis\+cluster://"):
            await asyncio.gather(*(store.append(f"log:{number}", numbered(1)) for number in range(50)))


# Scripts


async def test_a_flushed_script_cache_goes_unnoticed(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        for number in range(3):
            redis.client().script_flush()
            assert await store.append(log, numbered(1)) == number + 1


async def test_a_flushed_script_cache_goes_unnoticed_in_a_cluster(redis_cluster: RedisCluster, log: str) -> None:
    async with opened(redis_cluster.url) as store:
        for number in range(3):
            for node in redis_cluster.nodes:
                node.client().script_flush()
            assert await store.append(log, numbered(1)) == number + 1


async def test_the_keys_of_a_place_share_a_slot(redis_cluster: RedisCluster) -> None:
    for place in ("plain", "with {braces}", "}{", "50%"):
        keys = [*log_keys(place), *log_keys(f"{place}|/chat"), *log_keys(f"{place}|a}}b{{|c")]

        assert len({ask(redis_cluster.nodes[0], "CLUSTER", "KEYSLOT", key) for key in keys}) == 1


async def test_a_claim_of_nothing_writes_nothing(own_redis: RedisServer, log: str) -> None:
    client = own_redis.client()
    async with opened(own_redis.url) as store:
        await store.append(log, numbered(2))
        await store.claim(log, limit=1, lease_seconds=100)
        await store.claim(log, limit=1)
        before = client.info("persistence")["rdb_changes_since_last_save"]

        assert not (await store.claim(log, limit=1, lease_seconds=100)).leases
        await store.read(log, after=0)
        await store.stat(log)

        assert client.info("persistence")["rdb_changes_since_last_save"] == before


async def test_ids_are_exact_as_far_as_redis_counts(redis: RedisServer, log: str) -> None:
    far = 9_007_199_254_000_000
    async with opened(redis.url) as store:
        await store.touch(log, create=True)
        last, first, head, fence, size = far, far + 1, far + 1, 0, far
        redis.client().hset(log_keys(log)[0], "state", struct.pack("<11d", last, first, head, fence, size, *[0] * 6))

        assert await store.append(log, numbered(5)) == far + 1
        claim = await store.claim(log, limit=3, lease_seconds=30)
        assert claimed_ids(claim) == [far + 1, far + 2, far + 3]
        await store.settle(log, [claim.leases[0].part(far + 2, far + 2)])
        await store.release(log, [claim.leases[0].part(far + 3, far + 3)])
        assert claimed_ids(await store.claim(log, limit=9, lease_seconds=30)) == [far + 3, far + 4, far + 5]
        assert (await store.read(log, after=far + 4)).batches[0].last_id == far + 5


async def test_settled_batches_leave_the_server_whatever_their_order(redis: RedisServer, log: str) -> None:
    client, stream = redis.client(), log_keys(log)[1]
    async with opened(redis.url) as store:
        for start in range(1, 41, 2):
            await store.append(log, numbered(2, start))
        (lease,) = (await store.claim(log, limit=40, lease_seconds=30)).leases

        await store.settle(log, [lease.part(2, 7)])
        assert client.xlen(stream) == 18  # 3-4 and 5-6 are done, 1-2 and 7-8 only half
        await store.settle(log, [lease.part(9, 39)])
        assert client.xlen(stream) == 3
        await store.settle(log, [lease.part(1, 1), lease.part(8, 8), lease.part(40, 40)])
        assert client.xlen(stream) == 0
        assert client.exists(*log_keys(log)[2:]) == 0


# Keys that go by themselves


async def test_the_keys_of_an_expired_log_leave_the_server(redis: RedisServer, log: str) -> None:
    client, clock = redis.client(), FakeClock()
    async with opened(redis.url, StoreOptions(clock=clock)) as store:
        await store.touch(log, ttl_seconds=10, create=True)
        await store.append(log, numbered(9))
        leases = (await store.claim(log, limit=5, lease_seconds=100)).leases
        await store.release(log, [leases[0].part(2, 2)])

        # Nobody has to ask for them: Redis forgets them a minute later.
        expected = clock.now_ms + 70_000
        existing = [key for key in log_keys(log) if client.exists(key)]
        assert [ask(redis, "PEXPIRETIME", key) for key in existing] == [expected] * 5
        # And whoever asks finds them expired and removes them.
        clock.advance(10)
        assert await store.stat(log) is None
        assert client.exists(*log_keys(log)) == 0


async def test_what_lives_for_ever_again_is_not_forgotten(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        await store.touch(log, ttl_seconds=10, create=True)
        await store.append(log, numbered(1))
        await store.put(log, {"a": b"1"}, ttl_seconds=10)

        await store.touch(log, ttl_seconds=0)
        await store.put(log, {"a": b"1"}, ttl_seconds=0)

        keys = [*log_keys(log)[:2], record_key(log)]
        assert {ask(redis, "PEXPIRETIME", key) for key in keys} == {-1}


async def test_a_new_log_has_nothing_of_an_old_one_whose_header_expired(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        await store.append(log, numbered(5))
        await store.claim(log, limit=3, lease_seconds=100)
        redis.client().delete(log_keys(log)[0])

        assert await store.append(log, batch_of("new")) == 1

        assert claimed_ids(await store.claim(log, limit=9, lease_seconds=1)) == [1]
        stat = await store.stat(log)
        assert stat is not None
        assert (stat.held, stat.claimable) == (1, 0)


async def test_an_append_that_need_not_trim_reads_no_batch(redis: RedisServer, log: str) -> None:
    client, retain = redis.client(), Retention(max_count=100, max_bytes=10_000, max_age_seconds=60)
    async with opened(redis.url) as store:
        await store.append(log, numbered(1), retain=retain)
        client.config_resetstat()
        await store.append(log, numbered(1), retain=retain)

    assert "cmdstat_xrange" not in client.info("commandstats")


# Limits and facts


async def test_a_full_server_refuses_appends_and_can_still_be_emptied(own_redis: RedisServer, log: str) -> None:
    client = own_redis.client()
    async with opened(own_redis.url) as store:
        await store.append(log, batch_of("x" * 1_000_000, "y"))
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull, match="maxmemory"):
            await store.append(log, numbered(1))

        claim = await store.claim(log, limit=1, lease_seconds=10)
        await store.settle(log, claim.leases)
        claim = await store.claim(log, limit=1, lease_seconds=10)
        await store.release(log, claim.leases)
        await store.claim(log, limit=1)

        client.config_set("maxmemory", 0)
        assert await store.append(log, numbered(1)) == 3


def finding(findings: object, topic: str) -> Finding:
    assert isinstance(findings, list)
    return next(one for one in findings if isinstance(one, Finding) and one.topic == topic)


async def test_the_doctor_tells_how_safe_messages_are(own_redis: RedisServer) -> None:
    client = own_redis.client()
    async with opened(own_redis.url) as store:
        seen = await store.inspect()
        assert (seen.product, seen.version) == ("Redis", client.info("server")["redis_version"])
        assert finding(seen.findings, "durability").verdict is Verdict.GOOD

        client.config_set("appendfsync", "everysec")
        everysec = finding((await store.inspect()).findings, "durability")
        assert (everysec.verdict, "one second" in everysec.text) == (Verdict.INFO, True)

        client.config_set("appendonly", "no")
        client.config_set("save", "3600 1")
        snapshots = finding((await store.inspect()).findings, "durability")
        assert (snapshots.verdict, "since the last snapshot" in snapshots.text) == (Verdict.BAD, True)

        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", 2**40)
        assert finding((await store.inspect()).findings, "memory").verdict is Verdict.BAD


async def test_the_doctor_gets_along_without_the_settings(own_redis: RedisServer) -> None:
    ask(own_redis, "ACL", "SETUSER", "default", "-config")
    with pytest.raises(ResponseError):
        own_redis.client().config_get("save")

    async with opened(own_redis.url) as store:
        durability = finding((await store.inspect()).findings, "durability")

    assert (durability.verdict, "does not let us see" in durability.text) == (Verdict.INFO, True)


async def test_the_doctor_looks_at_sentinel_and_cluster(
    redis_sentinel: RedisSentinel, redis_cluster: RedisCluster
) -> None:
    async with opened(redis_sentinel.url) as store:
        replication = finding((await store.inspect()).findings, "replication")
        assert "can lose the last messages" in replication.text
    async with opened(redis_cluster.url) as store:
        replication = finding((await store.inspect()).findings, "replication")
        assert (replication.verdict, "no replica" in replication.text) == (Verdict.BAD, True)


async def test_large_batches_are_read_as_small_ones_are(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        assert isinstance(store, RedisStore)
        for number in range(40):
            size = 30_000 if number % 7 else 200_000
            await store.append(log, batch_of(*(str(number) * size for _ in range(number % 3 + 1))))
        await store.trim(log, Retention(max_count=70))
        first = (await store.read(log, after=0)).first_id
        for after in (0, first - 1, first, first + 1, 40, 78, 79):
            for limit, max_bytes in ((1, 1), (2, 10_000_000), (10, 500_000), (1000, 250_000), (1000, 100_000_000)):
                store._sizes.clear()
                small = await store.read(log, after=after, limit=limit, max_bytes=max_bytes)
                store._sizes[log] = 50_000

                large = await store.read(log, after=after, limit=limit, max_bytes=max_bytes)

                assert (large.first_id, large.last_id, large.epoch) == (small.first_id, small.last_id, small.epoch)
                # So many come at once, whatever there is room for.
                assert large.batches == small.batches[:16]


async def test_of_large_batches_those_of_another_life_are_not_read(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        await store.append(log, batch_of("x" * 100_000))
        old = await store.read(log, after=0)
        await store.drop(log)
        assert await store.read(log, after=0) == Slice((), 1, 0, "")

        await store.append(log, batch_of("y" * 100_000))

        new = await store.read(log, after=0)
        assert new.epoch != old.epoch
        assert texts_of(new) == ["y" * 100_000]


async def test_what_is_staged_after_its_time_is_up_is_refused_and_leaves_nothing(redis: RedisServer, log: str) -> None:
    clock = FakeClock()
    async with opened(redis.url, StoreOptions(clock=clock)) as store:
        staging = await store.stage(log, ttl_seconds=60)
        await store.append(staging, numbered(1))
        clock.advance(61)

        with pytest.raises(StagingLost):
            await store.append(staging, numbered(1))

        assert ask(redis, "EXISTS", *log_keys(staging)) == 0


# Batches that lie apart from their log


async def transferred(store: Store, log: str, count: int = 6) -> list[bytes]:
    """Stage batches of two large messages each, move them to a log, and return them."""
    batches = [large(number) for number in range(count)]
    staging = await store.stage(log, ttl_seconds=60)
    first_ids = await asyncio.gather(*(store.append(staging, batch, durable=False) for batch in batches))
    assert sorted(first_ids) == [2 * number + 1 for number in range(count)]
    await store.transfer(staging, log, [first_id + 1 for first_id in first_ids])
    assert await store.drop(staging)
    return batches


def large(number: int) -> bytes:
    return batch_of(f"{number}-" * 10_000, f"{number}+" * 10_000)


def apart(redis: RedisServer, log: str) -> int:
    """Return how many batches of a place lie apart."""
    return sum(1 for _ in redis.client().scan_iter(f"onebus:{{{log}}}*:apart:*"))


async def test_large_batches_are_moved_without_being_copied(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        batches = await transferred(store, log)

        assert apart(redis, log) == 6
        for _ in range(2):  # with Lua, and without it
            found = await store.read(log, after=0)
            assert [bytes(batch.blob) for batch in found.batches] == batches
        stat = await stat_of(store, log)
        assert (stat.last_id, stat.bytes) == (12, sum(map(len, batches)))


async def test_large_batches_that_were_moved_are_claimed_and_settled_as_others_are(
    redis: RedisServer, log: str
) -> None:
    appended = f"{log}|appended"
    async with opened(redis.url) as store:
        for batch in await transferred(store, log):
            await store.append(appended, batch)

        for name in (log, appended):
            leases = [(await store.claim(name, limit=2, lease_seconds=60)).leases[0] for _ in range(6)]
            await store.settle(name, [leases[2], leases[3].part(7, 7)])
            await store.release(name, [leases[4]])

        for limit in (1, 2):
            claims = [await store.claim(name, limit=limit) for name in (log, appended)]
            assert claimed_texts(claims[0]) == claimed_texts(claims[1])
        assert (await stat_of(store, log)).held == (await stat_of(store, appended)).held == 7
        # The third is done, and the fifth.
        assert apart(redis, log) == 4


@pytest.mark.parametrize(
    ("forget", "left"),
    [
        (lambda store, log: store.trim(log, Retention(max_count=5)), 3),
        (lambda store, log: store.trim(log, Retention(max_bytes=50_000)), 1),
        (lambda store, log: store.append(log, large(9), retain=Retention(max_count=4)), 1),
        (lambda store, log: store.claim(log, limit=4), 4),
        (lambda store, log: store.claim(log, limit=12), 0),
        (lambda store, log: store.clear(log), 0),
        (lambda store, log: store.drop(log), 0),
    ],
)
async def test_what_is_forgotten_lies_nowhere(
    redis: RedisServer, log: str, forget: Callable[[Store, str], Awaitable[object]], left: int
) -> None:
    async with opened(redis.url) as store:
        await transferred(store, log)

        await forget(store, log)

        assert apart(redis, log) == left
        assert ask(redis, "ZCARD", log_keys(log)[5]) == left
        for _ in range(2):
            for batch in (await store.read(log, after=0)).batches:
                assert decode(batch.blob).count == 2


async def test_what_lies_apart_expires_with_its_log(redis: RedisServer, log: str) -> None:
    client, clock = redis.client(), FakeClock()
    async with opened(redis.url, StoreOptions(clock=clock)) as store:
        staging = await store.stage(log, ttl_seconds=60)
        await store.append(staging, large(1), durable=False)
        [key] = client.scan_iter(f"onebus:{{{log}}}*:apart:*")
        keys = [*(key for key in log_keys(staging) if client.exists(key)), key]
        assert len(keys) == 4

        assert {ask(redis, "PEXPIRETIME", key) for key in keys} == {clock.now_ms + 120_000}
        clock.advance(45)
        await store.append(staging, large(2), durable=False)
        assert {ask(redis, "PEXPIRETIME", key) for key in keys} == {clock.now_ms + 120_000}
        await store.touch(staging, ttl_seconds=0)
        await store.append(staging, large(3), durable=False)
        assert {ask(redis, "PEXPIRETIME", key) for key in keys} == {-1}
        await store.touch(log, ttl_seconds=10, create=True)
        await store.transfer(staging, log, [2, 4, 6])
        assert ask(redis, "PEXPIRETIME", key) == clock.now_ms + 70_000
        clock.advance(10)
        assert await store.stat(log) is None
        assert apart(redis, log) == 0


async def test_a_log_that_lives_for_ever_keeps_what_was_staged_for_a_time(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        await transferred(store, log)

        keys = list(redis.client().scan_iter(f"onebus:{{{log}}}*:apart*"))
        assert len(keys) == 7
        assert {ask(redis, "PEXPIRETIME", key) for key in keys} == {-1}


async def test_a_large_batch_for_a_staging_log_that_is_gone_leaves_nothing(redis: RedisServer, log: str) -> None:
    async with opened(redis.url) as store:
        staging = await store.stage(log, ttl_seconds=60)
        await store.append(staging, large(1), durable=False)
        await store.drop(staging)

        with pytest.raises(StagingLost):
            await store.append(staging, large(2), durable=False)

        assert apart(redis, log) == 0


async def test_a_mirror_has_large_batches_of_its_own(redis: RedisServer, log: str) -> None:
    mirror = f"{log}|mirror"
    async with opened(redis.url) as store:
        staging = await store.stage(log, ttl_seconds=60)
        await store.append(staging, large(1), durable=False)
        await store.transfer(staging, log, [2], mirror=mirror)
        await store.drop(log)

        assert texts_of(await store.read(mirror, after=0)) == ["1-" * 10_000, "1+" * 10_000]
        assert apart(redis, log) == 0


async def test_what_somebody_else_has_deleted_is_missed(redis: RedisServer, log: str) -> None:
    client = redis.client()
    async with opened(redis.url) as store:
        await transferred(store, log, 1)
        staging = await store.stage(log, ttl_seconds=60)
        await store.append(staging, large(1), durable=False)
        for key in client.scan_iter(f"onebus:{{{log}}}*:apart:*"):
            client.delete(key)

        with pytest.raises(StagingLost, match="1 batches"):
            await store.transfer(staging, log, [2])
        for _ in range(2):
            [batch] = (await store.read(log, after=0)).batches
            with pytest.raises(CorruptBatch):
                decode(batch.blob)
