"""What is particular to the blocking objects; that they do what the async ones do is tested in tests/objects."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import pytest

import onebus
from onebus.errors import (
    AlreadyConsuming,
    BusError,
    InvalidArgument,
    LeaseLost,
    LogFull,
    MessagesMissed,
    NotAttached,
    NotConnected,
    NotSerializable,
    RequestFailed,
    UsedAfterFork,
    WouldDeadlock,
)
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.message import FeedMessage
from onebus.sync import Bus, Channel, Message, Persistable, Queue
from onebus.sync.pusher import MAX_UNFINISHED

PATIENCE_SECONDS = 40.0


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/bus.db"


@pytest.fixture
def bus(url: str) -> Iterator[Bus]:
    with Bus(url) as bus:
        yield bus


@pytest.fixture
def other_bus(url: str, bus: Bus) -> Iterator[Bus]:
    with Bus(url) as other:
        yield other


@pytest.fixture
def queue(bus: Bus) -> Iterator[Queue]:
    with bus.queue("jobs") as queue:
        yield queue


def eventually(condition: Callable[[], object]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.005)


# Queues


def test_messages_are_pushed_consumed_and_acknowledged(bus: Bus) -> None:
    with bus.queue("jobs") as queue:
        assert queue.push({"a": 1}) == 1
        assert queue.push_many(["two", b"three"]) == [2, 3]
        received = []
        for message in queue.consume(reliable=True, max=3):
            received.append((message.id, message.data, message.attempts, message.kind.name))
            message.ack()

        assert received == [(1, {"a": 1}, 1, "JSON"), (2, "two", 1, "TEXT"), (3, b"three", 1, "BYTES")]
        assert (queue.pushed, queue.consumed, queue.count()) == (3, 3, 0)


@pytest.mark.parametrize("reliable", [False, True])
def test_what_a_left_loop_was_not_handed_stays_in_the_queue(queue: Queue, reliable: bool) -> None:
    queue.push_many(list(range(1000)))
    for message in queue.consume(reliable=reliable):
        message.ack()
        if message.data == 499:
            break

    assert not queue.is_consuming
    assert queue.consumed == 500
    assert queue.count() == 500
    rest = list(queue.consume(timeout=0))
    assert [message.data for message in rest] == list(range(500, 1000))
    assert {message.attempts for message in rest} == {1}


def test_what_was_handed_over_and_not_acknowledged_comes_again(queue: Queue) -> None:
    queue.push_many(list(range(100)))
    for message in queue.consume(reliable=True):
        if message.data % 2:
            message.ack()
        if message.data == 9:
            break

    again = list(queue.consume(timeout=0))

    assert [message.data for message in again] == [0, 2, 4, 6, 8, *range(10, 100)]
    assert [message.attempts for message in again[:6]] == [2, 2, 2, 2, 2, 1]


def test_a_message_that_was_put_back_was_never_handed_over(queue: Queue, bus: Bus) -> None:
    queue.push_many(["one", "two"])
    for message in queue.consume():
        if message.data == "two":
            queue.put_back(message)
            break

    assert [(message.data, message.attempts) for message in queue.peek()] == [("two", 0)]
    assert [state.name for state in bus.queues("jo")] == ["jobs"]
    assert [(message.data, message.attempts) for message in queue.consume(wait=False)] == [("two", 1)]


def test_max_takes_no_more_than_that(queue: Queue) -> None:
    queue.push_many(list(range(1000)))

    for most in (0, 1, 10, 300):
        assert len(list(queue.consume(max=most))) == most

    assert queue.count() == 1000 - 311
    assert next(queue.consume()).data == 311


def test_stop_in_another_thread_ends_the_loop_and_loses_nothing(queue: Queue, bus: Bus) -> None:
    queue.push_many(list(range(20_000)))
    with bus.queue("jobs") as other, ThreadPoolExecutor() as pool:
        received: list[int] = []
        for message in queue.consume():
            received.append(message.data)
            if len(received) == 5000:
                pool.submit(queue.stop)
        stopped_at = queue.consumed
        rest = [message.data for message in other.consume(timeout=0)]

    assert stopped_at == len(received)
    assert received + rest == list(range(20_000))


def test_a_loop_ends_when_nothing_comes_in_time(queue: Queue) -> None:
    began = time.monotonic()

    assert list(queue.consume(timeout=0.2)) == []
    assert 0.15 < time.monotonic() - began < 5
    assert list(queue.consume(remove=False, timeout=0)) == []
    queue.push(1)
    assert [message.data for message in queue.consume(remove=False, timeout=0)] == [1]
    assert [message.data for message in queue.consume(timeout=0)] == [1]
    with pytest.raises(InvalidArgument):
        queue.consume(timeout=-1)


def test_a_waiting_loop_gets_what_is_pushed_meanwhile(queue: Queue, other_bus: Bus) -> None:
    with other_bus.queue("jobs") as other, ThreadPoolExecutor() as pool:
        received = pool.submit(lambda: [message.data for message in queue.consume(max=3, timeout=PATIENCE_SECONDS)])
        eventually(lambda: queue.is_consuming)
        for number in range(3):
            other.push(number)

        assert received.result() == [0, 1, 2]


def test_messages_are_read_without_taking_them_away(queue: Queue) -> None:
    queue.push_many(list(range(10)))

    assert [message.data for message in queue.consume(remove=False, index=7, max=2)] == [7, 8]
    assert [message.data for message in queue.consume(remove=False, timeout=0)] == list(range(10))
    assert queue.count() == 10


def test_a_message_is_released_extended_and_rejected(queue: Queue) -> None:
    queue.push_many(["later", "bad"])
    messages = queue.consume(lease=30)
    later, bad = next(messages), next(messages)
    later.extend(60)
    bad.reject("no good")
    later.release()
    messages.close()

    with pytest.raises(LeaseLost):
        later.ack()
    assert [(letter.data, letter.reason) for letter in queue.dead.list()] == [("bad", "no good")]
    assert queue.redrive() == 1
    assert sorted(message.data for message in queue.consume(timeout=0)) == ["bad", "later"]


def test_acknowledging_until_a_message_is_settled_at_once(queue: Queue, other_bus: Bus) -> None:
    queue.push_many(list(range(10)))
    messages = queue.consume(reliable=True)
    handed = [next(messages) for _ in range(5)]

    queue.ack(handed[3].id)
    messages.close()

    with other_bus.queue("jobs") as other:
        assert [message.data for message in other.consume(timeout=0)] == list(range(4, 10))


def test_two_loops_of_one_object_exclude_each_other(queue: Queue) -> None:
    queue.push(1)
    messages = queue.consume()
    next(messages)

    with pytest.raises(AlreadyConsuming):
        next(queue.consume())

    messages.close()
    assert not queue.is_consuming


def test_who_is_not_attached_hears_so_instead_of_waiting_for_ever(bus: Bus) -> None:
    queue = bus.queue("jobs")

    for use in (lambda: queue.push(1), lambda: queue.push_many([1]), lambda: next(queue.consume())):
        with pytest.raises(NotAttached):
            use()


def test_a_push_without_waiting_keeps_its_place(queue: Queue) -> None:
    first = queue.push_soon("first")
    assert queue.push("second") == 2
    assert first.done()
    assert first.result() == 1

    for number in range(2 * MAX_UNFINISHED):
        last = queue.push_soon(number)
    assert last.result() == 2 + 2 * MAX_UNFINISHED
    assert queue.count() == 2 + 2 * MAX_UNFINISHED


def test_large_pushes_without_waiting_keep_their_order(queue: Queue) -> None:
    large = "x" * 900_000
    for number in range(60):
        queue.push_soon([number, large])

    assert [message.data[0] for message in queue.consume(max=60, prefetch=1)] == list(range(60))


def test_what_is_pushed_without_waiting_before_attaching_is_pushed_then(bus: Bus) -> None:
    queue = bus.queue("early")
    pushed = [queue.push_soon(number) for number in range(5)]
    with pytest.raises(TimeoutError):
        pushed[0].result(timeout=0.01)

    with queue:
        assert [one.result() for one in pushed] == [1, 2, 3, 4, 5]


def test_a_failed_push_is_an_error_event_if_nobody_asks(bus: Bus) -> None:
    errors: SimpleQueue[Exception] = SimpleQueue()
    with bus.queue("jobs", max_size=1) as queue:
        queue.on("error", errors.put)
        queue.push("fits")

        asked = queue.push_soon("too many")
        with pytest.raises(LogFull):
            asked.result()
        del asked
        assert errors.empty()
        with pytest.raises(NotSerializable):
            queue.push(object())
        queue.push_soon("too many again")

        assert isinstance(errors.get(timeout=PATIENCE_SECONDS), LogFull)
        assert errors.empty()


def test_metadata_and_state_are_asked_for(bus: Bus) -> None:
    queue = bus.queue("jobs", ttl=60)
    assert not queue.exists()
    with queue:
        queue.metadata("owner", "me")
        queue.metadata({"a": 1, "b": None})
        assert queue.metadata("owner") == "me"
        assert queue.metadata("b") is None
        assert queue.metadata()["a"] == 1
        assert (queue.exists(), queue.ttl(), queue.is_attached, queue.name) == (True, 60, True, "jobs")
        queue.push(1)
        queue.flush()
        assert queue.count() == 0
        queue.close()
    assert not queue.exists()


# Threads


def test_many_threads_share_a_bus(bus: Bus) -> None:
    seen: SimpleQueue[int] = SimpleQueue()

    def consume() -> int:
        with bus.queue("shared") as queue:
            count = 0
            for message in queue.consume(reliable=True, timeout=1):
                seen.put(message.data)
                message.ack()
                count += 1
        return count

    with bus.queue("shared") as queue, ThreadPoolExecutor(8) as pool:
        consumers = [pool.submit(consume) for _ in range(4)]
        list(pool.map(queue.push, range(200)))
        assert sum(consumer.result() for consumer in consumers) == 200

    assert sorted(seen.get() for _ in range(200)) == list(range(200))


def test_messages_may_be_acknowledged_in_other_threads(queue: Queue) -> None:
    queue.push_many(list(range(100)))

    with ThreadPoolExecutor(4) as pool:
        acknowledging = []
        for message in queue.consume(reliable=True, max=100):
            acknowledging.append(pool.submit(message.ack))
            if len(acknowledging) == 100:
                # The loop is about to end, and with it the time to acknowledge.
                wait(acknowledging)

    assert queue.count() == 0


@pytest.fixture
def threads() -> Callable[[], list[str]]:
    """Names the threads of buses that began after the test did: others in this process may have some of their own."""
    earlier = set(threading.enumerate())

    def begun() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name.startswith("onebus") and one not in earlier]

    return begun


def test_a_bus_has_one_thread_while_it_is_connected(threads: Callable[[], list[str]]) -> None:
    bus = Bus("memory://")
    assert threads() == []

    for _ in range(2):
        with bus:
            assert threads() == ["onebus-loop"]
        assert threads() == []

    bus.disconnect()
    assert threads() == []


def test_a_bus_that_nobody_uses_any_more_ends_its_thread(threads: Callable[[], list[str]]) -> None:
    bus = Bus("memory://")
    bus.connect()
    assert threads() == ["onebus-loop"]

    del bus
    gc.collect()

    eventually(lambda: threads() == [])


def test_objects_may_be_used_again_after_the_bus_was_connected_again(url: str) -> None:
    bus = Bus(url)
    queue = bus.queue("jobs")
    with pytest.raises(NotConnected):
        queue.attach()

    for number in range(2):
        with bus, queue:
            queue.push(number)
            assert next(queue.consume(timeout=PATIENCE_SECONDS)).data == number
    bus.disconnect()


def test_disconnecting_ends_what_other_threads_wait_for(bus: Bus) -> None:
    service = bus.service("slow")
    blocked, release = threading.Event(), threading.Event()

    def handler(_: Any) -> None:
        blocked.set()
        release.wait(PATIENCE_SECONDS)

    service.serve(handler)
    with bus.queue("jobs") as queue, ThreadPoolExecutor() as pool:
        consuming = pool.submit(lambda: list(queue.consume()))
        asking = pool.submit(bus.service("slow").request, 1, 60)
        assert blocked.wait(PATIENCE_SECONDS)
        eventually(lambda: queue.is_consuming)

        bus.disconnect()

        assert consuming.result(PATIENCE_SECONDS) == []
        with pytest.raises(BusError):
            asking.result(PATIENCE_SECONDS)
        release.set()


# Handlers


def test_handlers_may_use_the_bus(bus: Bus, other_bus: Bus) -> None:
    done: SimpleQueue[Any] = SimpleQueue()
    with bus.queue("in") as incoming, bus.queue("out") as outgoing, other_bus.queue("in") as producer:

        def handle(message: Message) -> None:
            outgoing.push(message.data * 2)
            incoming.ack(message.id)
            if message.data == 9:
                incoming.stop()

        incoming.on("message", handle)
        incoming.on("consuming", done.put)
        incoming.on("error", done.put)
        incoming.start(reliable=True)
        producer.push_many(list(range(10)))

        assert [done.get(timeout=PATIENCE_SECONDS) for _ in range(2)] == [True, False]
        assert [message.data for message in outgoing.consume(max=10)] == list(range(0, 20, 2))
        assert incoming.count() == 0
        assert done.empty()


def test_a_blocked_handler_holds_up_nobody_else(bus: Bus) -> None:
    release, heard = threading.Event(), SimpleQueue[int]()
    with bus.queue("slow") as slow, bus.queue("fast") as fast:
        slow.on("message", lambda _: release.wait(PATIENCE_SECONDS))
        fast.on("message", lambda message: heard.put(message.data))
        slow.start()
        fast.start()
        slow.push(1)

        fast.push(2)

        assert heard.get(timeout=PATIENCE_SECONDS) == 2
        release.set()


def test_handlers_are_called_in_order_once_and_no_more() -> None:
    heard: list[str] = []
    bus = Bus("memory://")

    def again() -> None:
        heard.append("on")

    bus.on("online", again)
    bus.once("online", again)
    bus.once("offline", lambda: heard.append("offline"))
    for _ in range(2):
        with bus:
            pass
    assert heard == ["on", "on", "offline", "on"]

    bus.off("online", again)
    with bus:
        pass
    assert len(heard) == 4
    bus.on("online", again)
    bus.off("online")
    with bus:
        pass
    assert len(heard) == 4


def test_a_failing_handler_is_an_error_event(queue: Queue) -> None:
    errors: SimpleQueue[Exception] = SimpleQueue()
    queue.on("message", lambda message: 1 / message.data)
    queue.on("error", errors.put)
    queue.start()

    queue.push(0)

    assert isinstance(errors.get(timeout=PATIENCE_SECONDS), ZeroDivisionError)


def test_a_handler_may_disconnect_the_bus(bus: Bus) -> None:
    # Other buses, of which nobody has collected the garbage yet, may have threads too.
    thread = bus.portal._thread
    assert thread is not None

    with bus.queue("jobs") as queue:
        queue.on("message", lambda _: bus.disconnect())
        queue.start()
        queue.push("goodbye")

        eventually(lambda: not bus.is_online)
        eventually(lambda: not thread.is_alive())


def test_a_bus_that_is_connected_again_while_it_is_left_goes_on(bus: Bus, other_bus: Bus) -> None:
    def come_back() -> None:
        bus.connect()
        bus.service("greeter").serve(lambda name: f"hello {name}")

    bus.once("offline", come_back)

    bus.disconnect()

    assert other_bus.service("greeter").request("Ada") == "hello Ada"


def test_a_handler_may_stop_its_server(bus: Bus, other_bus: Bus) -> None:
    def answer_and_stop(_: Any) -> str:
        server.stop(grace=60)
        return "the last answer"

    server = bus.service("ask")
    server.serve(answer_and_stop)

    assert other_bus.service("ask").request(None) == "the last answer"
    assert not server.is_serving


def test_async_handlers_are_refused(bus: Bus) -> None:
    async def handle(_: Any) -> None: ...

    with pytest.raises(InvalidArgument):
        bus.on("online", handle)
    with pytest.raises(InvalidArgument):
        bus.service("s").serve(handle)


def test_a_call_in_the_thread_of_the_bus_is_refused() -> None:
    refused: list[Exception] = []

    def clock() -> int:
        try:
            own_bus.queue("other").count()
        except WouldDeadlock as error:
            refused.append(error)
        return time.time_ns() // 1_000_000

    own_bus = Bus("memory://", clock=clock)
    with own_bus, own_bus.queue("jobs") as queue:
        queue.push(1)

    assert refused


# The other objects


def test_peers_talk_over_a_channel(bus: Bus, other_bus: Bus) -> None:
    heard: SimpleQueue[Any] = SimpleQueue()
    server, client = other_bus.channel("talk"), bus.channel("talk")
    server.on("message", lambda message: server.send(message.data + "!"))
    client.on("message", lambda message: heard.put(message.data))
    client.once("end", lambda: heard.put("end"))
    server.listen()
    with client:
        assert isinstance(client, Channel)
        client.send("hello")
        assert heard.get(timeout=PATIENCE_SECONDS) == "hello!"
        assert client.is_remote_connected
        server.end()
        assert heard.get(timeout=PATIENCE_SECONDS) == "end"
        assert not client.is_attached


def test_what_is_published_is_iterated_over(bus: Bus, other_bus: Bus) -> None:
    news, other_news = bus.pubsub("news"), other_bus.pubsub("news")
    with ThreadPoolExecutor() as pool:
        hearing = pool.submit(lambda: [data for data, _ in zip(news.messages(), range(100), strict=False)])
        eventually(lambda: other_news.publish(0))
        for number in range(1, 150):
            other_news.publish(number)

        heard = hearing.result(PATIENCE_SECONDS)

    assert heard == list(range(heard[0], heard[0] + 100))
    assert list(news.messages(timeout=0.05)) == []


def test_what_is_published_is_an_event(bus: Bus, other_bus: Bus) -> None:
    heard: SimpleQueue[Any] = SimpleQueue()
    news = bus.pubsub("news")
    news.on("message", heard.put)
    news.subscribe()

    assert other_bus.pubsub("news").publish({"a": 1}) == 1

    assert heard.get(timeout=PATIENCE_SECONDS) == {"a": 1}
    assert news.is_subscribed
    news.unsubscribe()
    assert not news.is_subscribed


def test_a_channel_is_followed_by_a_loop_that_may_be_left_and_taken_up_again(bus: Bus, other_bus: Bus) -> None:
    other_bus.feeds.publish_many("/chat", ["forgotten", "one"])

    with bus.subscribe("/chat", last_id=-2) as subscription:
        assert other_bus.feeds.publish_many("/chat", ["two", "three", "four"]) == [3, 4, 5]
        received = []
        for message in subscription:
            received.append(message.data)
            if message.data == "two":
                break
        received += [message.data for message in subscription.messages(timeout=0.5)]

    assert received == ["one", "two", "three", "four"]
    assert list(subscription) == []


def test_a_loop_hears_of_messages_that_were_forgotten_and_goes_on(url: str) -> None:
    with Bus(url, feed_limits=FeedLimits(max_backlog_size=2)) as bus:
        bus.feeds.publish_many("/chat", [1, 2, 3, 4])
        with bus.subscribe("/chat", last_id=1) as subscription:
            with pytest.raises(MessagesMissed) as missed:
                next(iter(subscription))
            received = [message.data for message in subscription.messages(timeout=0.5)]

    assert (missed.value.first, missed.value.last) == (2, 2)
    assert received == [3, 4]


def test_callbacks_of_a_channel_run_in_threads_and_may_block(bus: Bus, other_bus: Bus) -> None:
    received: SimpleQueue[str] = SimpleQueue()

    def hear(message: FeedMessage) -> None:
        assert bus.last_id("/chat") >= message.message_id
        received.put(message.data)

    bus.subscribe("/chat", hear)
    other_bus.publish("/chat", "hello")

    assert received.get(timeout=PATIENCE_SECONDS) == "hello"
    assert bus.unsubscribe("/chat", hear)
    assert not bus.unsubscribe("/chat", hear)


def test_what_channels_remember_is_asked_for(bus: Bus) -> None:
    bus.publish("/chat", {"a": 1}, user_ids=[7])
    bus.publish("/news", "n")

    assert [message.user_ids for message in bus.backlog("/chat")] == [[7]]
    assert [message.channel for message in bus.feeds.global_backlog()] == ["/chat", "/news"]
    assert bus.feeds.last_ids("/chat", "/news", "/none") == {"/chat": 1, "/news": 1, "/none": 0}
    newest = bus.feeds.last_message("/news")
    assert newest is not None
    assert newest.data == "n"
    bus.feeds.reset()
    assert bus.last_id("/chat") == 0


def test_feeds_are_switched_off_and_on(bus: Bus) -> None:
    subscription = bus.subscribe("/chat")
    bus.feeds.off()

    assert list(subscription) == []
    assert bus.publish("/chat", "nobody hears") == 0
    bus.feeds.on()
    assert bus.publish("/chat", "everybody does") == 1


def test_a_cache_is_a_dictionary_that_all_processes_share(bus: Bus, other_bus: Bus) -> None:
    with bus.cache("animals") as cache, other_bus.cache("animals") as other:
        cache["frogs"] = 5
        other["toads"] = 3
        eventually(lambda: dict(other) == dict(cache) == {"frogs": 5, "toads": 3})

        assert other.get_or_set("frogs", lambda: 0) == 5
        assert other.get_or_set("newts", lambda: 1) == 1
        del cache["toads"]
        eventually(lambda: dict(other) == dict(cache) == {"frogs": 5, "newts": 1})
        with pytest.raises(KeyError):
            del cache["toads"]
        other.clear()
        eventually(lambda: len(cache) == 0)


def test_a_service_answers_several_requests_at_the_same_time(bus: Bus, other_bus: Bus) -> None:
    meeting = threading.Barrier(3)

    def handler(number: int) -> int:
        meeting.wait(PATIENCE_SECONDS)
        return 100 // number

    server, client = bus.service("divide"), other_bus.service("divide")
    server.serve(handler)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(client.request, [1, 2, 5])) == [100, 50, 20]
        failing = [pool.submit(client.request, number) for number in (0, 1, 1)]
        with pytest.raises(RequestFailed) as caught:
            failing[0].result()
        assert caught.value.remote_code == "ZeroDivisionError"
    assert server.is_serving
    server.stop()
    client.disconnect()


def test_a_service_replies_with_all_that_its_generator_yields(bus: Bus, other_bus: Bus) -> None:
    def count(until: int) -> Iterator[int]:
        yield from range(until)

    bus.service("count").serve(count)
    client = other_bus.service("count")

    assert list(client.stream(2500)) == list(range(2500))
    assert client.request(3) == 2
    assert next(client.stream(10)) == 0
    client.notify(1)


def test_objects_are_kept_on_the_bus(bus: Bus, other_bus: Bus) -> None:
    target = {"count": 1, "secret": 2}
    mine = bus.persistify("thing", target, ["count"])
    mine.count = 5
    assert mine.dirty == ["count"]
    assert mine.save() == ["count"]
    theirs = other_bus.persistify("thing", {}, ["count"])
    assert theirs.load()
    assert theirs.count == 5
    mine.persist(60)
    mine.unpersist()
    assert target["count"] == 5


class Cart(Persistable):
    items: list[str] = []  # noqa: RUF012
    total: float = 0.0


def test_typed_objects_are_kept_on_the_bus(bus: Bus, other_bus: Bus) -> None:
    cart = Cart(bus, "cart", items=["apple"])
    assert sorted(cart.save()) == ["items", "total"]
    cart.items.append("pear")
    assert cart.dirty == ["items"]
    cart.save()

    found = Cart(other_bus, "cart")

    assert found.load()
    assert (found.items, found.total) == (["apple", "pear"], 0.0)
    found.persist(60)
    found.unpersist()


async def test_blocking_and_async_objects_share_a_memory_of_one_process() -> None:
    url = f"memory://{uuid4().hex}"
    async with onebus.Bus(url) as bus, bus.queue("jobs") as queue:
        received: list[Any] = []

        def consume() -> None:
            with Bus(url) as blocking, blocking.queue("jobs") as jobs:
                received.extend(message.data for message in jobs.consume(max=100, timeout=PATIENCE_SECONDS))

        thread = threading.Thread(target=consume)
        thread.start()
        for number in range(100):
            await queue.push(number)
        thread.join()

        assert received == list(range(100))


# Ctrl-C and fork


def interrupted(program: str, *arguments: str) -> str:
    """Run a program, interrupt it when it says so, and return what it says then."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    return said


def test_an_interrupted_loop_leaves_the_bus_usable(url: str) -> None:
    said = interrupted(
        """
import sys
from onebus.sync import Bus

with Bus(sys.argv[1]) as bus, bus.queue("jobs") as queue:
    try:
        print("ready", flush=True)
        for message in queue.consume():
            pass
    except KeyboardInterrupt:
        print("interrupted", queue.is_consuming)
    queue.push("still here")
    print(next(queue.consume()).data, queue.count())
    """,
        url,
    )

    assert said.splitlines() == ["interrupted False", "still here 0"]


def test_an_interrupted_call_is_cancelled(url: str) -> None:
    said = interrupted(
        """
import sys, threading
from onebus.sync import Bus

with Bus(sys.argv[1]) as bus:
    release = threading.Event()
    bus.service("slow").serve(lambda _: release.wait(10))
    client = bus.service("slow")
    try:
        print("ready", flush=True)
        client.request(1, timeout=60)
    except KeyboardInterrupt:
        print("interrupted")
    release.set()
    print(client.request(2))
    """,
        url,
    )

    assert said.splitlines() == ["interrupted", "True"]


def test_a_program_that_forgets_to_disconnect_ends() -> None:
    program = """
from onebus.sync import Bus
bus = Bus("memory://")
bus.connect()
queue = bus.queue("jobs")
queue.attach()
queue.on("message", print)
queue.start()
queue.push(1)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_hears_that_it_needs_a_bus_of_its_own(bus: Bus, queue: Queue) -> None:
    queue.push(1)
    messages = queue.consume(reliable=True)
    message = next(messages)
    reading, writing = os.pipe()

    if (child := os.fork()) == 0:
        codes = []
        for use in (
            queue.count,
            message.ack,
            lambda: queue.push(2),
            lambda: queue.push_soon(3),
            lambda: next(messages),
        ):
            try:
                use()
            except UsedAfterFork as error:
                codes.append(error.code)
            except BaseException as error:
                codes.append(repr(error))
        bus.disconnect()
        os.write(writing, " ".join(codes).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == " ".join(5 * ["used_after_fork"])
    message.ack()
    messages.close()
    assert queue.count() == 0
