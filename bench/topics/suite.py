"""The suite for topics: groups on Redis beside Streams and JetStream, and the broker beside bare sockets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench import targets
from bench.log import crew_of
from bench.peers import nats
from bench.peers.redis import streams_in_hundreds
from bench.places import RedisPlace, SqlitePlace, opened
from bench.progress import Progress
from bench.report import RATE, Report, comparison, measurement
from bench.timing import rate_of_both
from bench.topics import groups, relay
from onebus.objects.topics.description import DEFAULT_PARTITIONS
from tests.services import BrokerServer

SIZE = 100
ROUNDS = 5
"""How often everything is measured, in turn; the medians count."""
WORK_SECONDS = 20e-6


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    messages: int = 2_000_000
    peer_messages: int = 200_000
    jetstream_messages: int = 40_000
    seconds: float = 5.0


QUICK = Plan(messages=200_000, peer_messages=20_000, jetstream_messages=4_000, seconds=1.0)


@dataclass(frozen=True, slots=True)
class TopicsSuite:
    """Runs one scenario after the other, each with servers of its own."""

    plan: Plan
    report: Report
    progress: Progress

    @contextmanager
    def opened(self) -> Iterator[dict[str, Callable[[], None]]]:
        """Yield what measures each scenario."""
        yield {
            "the broker": self.broker,
            "groups on Redis": self.groups_on_redis,
            "two consumers": self.two_consumers,
        }

    def broker(self) -> None:
        """Plain clients, as the bare sockets; and ours, with a receipt for each array, and acknowledgements."""
        messages = self.plan.messages
        proxied, plain, acknowledged = [], [], []
        with opened(SqlitePlace) as place, crew_of(place) as crew:
            for number in range(ROUNDS):
                self.progress.step(f"the broker, round {number + 1}")
                with relay.Proxy() as proxy:
                    push = relay.Push(proxy.publishers, messages, SIZE)
                    listen = relay.Listen(proxy.publishers, proxy.consumers, messages)
                    proxied.append(rate_of_both(*crew.at_once("", push, listen)))
                with BrokerServer(place.separate_url()) as server:
                    push = relay.Push(server.publishers, messages, SIZE)
                    in_rooms = relay.ListenInRooms(server.management, server.consumers, messages)
                    plain.append(rate_of_both(*crew.at_once("", push, in_rooms)))
                with BrokerServer(place.separate_url()) as server:
                    send = relay.Send(server.publishers, messages, SIZE)
                    receive = relay.Receive(server.management, server.consumers, messages)
                    acknowledged.append(rate_of_both(*crew.at_once("", send, receive)))
        what = f"through the broker, in arrays of {relay.ARRAY_MESSAGES}, stored"
        peer = "PUSH, PULL, PUB, SUB through an empty proxy"
        for way, rates, target in (
            ("plain clients", plain, targets.BROKER_RAW),
            ("receipts and acknowledgements", acknowledged, None),
        ):
            own = self.report.add(measurement("sqlite", SIZE, f"{what}: {way}", median(rates), RATE))
            self.report.add(comparison(own, peer, median(proxied), target=target))

    def groups_on_redis(self) -> None:
        plan = self.plan
        ours, streams, jetstream = [], [], []
        with opened(RedisPlace) as place, crew_of(place) as crew:
            assert isinstance(place, RedisPlace)
            for number in range(ROUNDS):
                self.progress.step(f"topics on Redis, round {number + 1}")
                url = place.separate_url()
                publish, consume = groups.Publish(url, plan.messages, SIZE), groups.Consume(url, plan.messages)
                ours.append(rate_of_both(*crew.at_once(url, publish, consume)))
                with place.server.client() as client:
                    client.flushall()
                self.progress.step(f"Redis Streams, round {number + 1}")
                streams.append(streams_in_hundreds(place, crew, plan.peer_messages, SIZE))
                self.progress.step(f"JetStream, round {number + 1}")
                with nats.NatsServer() as server:
                    crew.alone(nats.Prepare(server.url))
                    send = nats.Publish(server.url, plan.jetstream_messages, SIZE)
                    fetch = nats.Fetch(server.url, plan.jetstream_messages)
                    jetstream.append(rate_of_both(*crew.at_once("", send, fetch)))
        what = "published to a topic, consumed and committed"
        own = self.report.add(measurement("redis", SIZE, what, median(ours), RATE))
        for peer, rates, target in (
            ("redis-py, Streams in pipelines of 100, acknowledged", streams, targets.TOPICS_STREAMS),
            ("NATS JetStream with files, nats-py", jetstream, targets.TOPICS_JETSTREAM),
        ):
            self.report.add(comparison(own, peer, median(rates), target=target))

    def two_consumers(self) -> None:
        plan = self.plan
        one, two = [], []
        with opened(RedisPlace) as place, crew_of(place) as crew:
            for number in range(ROUNDS):
                self.progress.step(f"one consumer and two, round {number + 1}")
                url = place.separate_url()
                # More than three can do in the time.
                crew.alone(groups.Publish(url, int(3 * plan.seconds / WORK_SECONDS), SIZE))
                one.append(crew.alone(self._work(url, members=1)).rate)
                work = self._work(url, members=2)
                two.append(sum(span.rate for span in crew.at_once(url, work, work)))
        what = f"two consumers that work {WORK_SECONDS * 1e6:.0f} µs on each message"
        own = self.report.add(measurement("redis", SIZE, what, median(two), RATE))
        self.report.add(comparison(own, "one consumer", median(one), target=targets.TWO_CONSUMERS))

    def _work(self, url: str, *, members: int) -> groups.Work:
        return groups.Work(url, self.plan.seconds, WORK_SECONDS, DEFAULT_PARTITIONS // members)
