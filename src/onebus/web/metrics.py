"""What goes on in the server, for Prometheus.

Several workers add up what they count in files of a folder that their parent made: Prometheus asks any of them and gets
the numbers of all. The doors count for themselves; what they have counted is handed on once in a while.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from onebus.bus import Bus
from onebus.errors import BusError
from onebus.objects.queues import QueueState
from onebus.web.answers import Answer
from onebus.web.feeds.door import FeedDoor

SHARED_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which workers know where to add up."""
FLUSH_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 2.0
MAX_QUEUES: Final = 1000


class Metrics:
    """Collects the numbers of a server when it is asked for them."""

    def __init__(self, bus: Bus, feeds: FeedDoor) -> None:
        self._bus = bus
        self._feeds = feeds
        self._registry = registry = CollectorRegistry()
        self._messages = Counter(
            "onebus_feed_messages_sent", "Messages of feeds sent to clients.", ["transport"], registry=registry
        )
        self._bytes = Counter("onebus_feed_bytes_sent", "Bytes sent to clients.", ["transport"], registry=registry)
        self._held = Gauge(
            "onebus_held_clients",
            "Clients that are being held.",
            ["transport"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._lag = Gauge(
            "onebus_feed_lag_seconds",
            "Time from publishing to arrival here, of the message that arrived last.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._online = self._newest("onebus_store_online", "Whether the store can be reached.")
        self._latency = self._newest("onebus_store_latency_seconds", "Time that the store took to answer just now.")
        self._queues = self._newest("onebus_queue_messages", "Messages in queues.", "queue", "state")
        self._queues_counted: set[tuple[str, str]] = set()
        self._counted: dict[tuple[Counter, str], int] = {}
        self._flushing: asyncio.TimerHandle | None = None

    def _newest(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry, multiprocess_mode="livemostrecent")

    def start(self) -> None:
        """Hand on what was counted once in a while, if other workers may be asked for it."""
        if SHARED_FOLDER in os.environ:
            self.flush()
            self._flushing = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.start)

    def stop(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def flush(self) -> None:
        """Hand on what was counted since the last time."""
        traffic = self._feeds.traffic
        for counter, counted in ((self._messages, traffic.messages), (self._bytes, traffic.bytes)):
            for transport, total in counted.items():
                key = (counter, transport)
                counter.labels(transport).inc(total - self._counted.get(key, 0))
                self._counted[key] = total
        held = self._feeds.held.by_transport()
        for transport in {*held, *traffic.messages}:
            self._held.labels(transport).set(held.get(transport, 0))
        self._lag.set(traffic.lag_seconds)

    async def answer(self) -> Answer:
        self.flush()
        await self._ask_store()
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Answer(200, CONTENT_TYPE_LATEST, generate_latest(registry), {"cache-control": "no-store"})

    async def _ask_store(self) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._bus.link.store.get("onebus")
                self._latency.set(time.perf_counter() - began)
                self._count_queues(await self._bus.queues())
        except (BusError, TimeoutError):
            self._online.set(0)
        else:
            self._online.set(1)

    def _count_queues(self, queues: Sequence[QueueState]) -> None:
        counts = dict.fromkeys(self._queues_counted, 0)
        for queue in queues[:MAX_QUEUES]:
            counts[queue.name, "waiting"] = queue.waiting
            counts[queue.name, "held"] = queue.held
            counts[queue.name, "delayed"] = queue.delayed
            counts[queue.name, "dead"] = queue.dead
        for labels, count in counts.items():
            self._queues.labels(*labels).set(count)
        self._queues_counted = {labels for labels, count in counts.items() if count}
