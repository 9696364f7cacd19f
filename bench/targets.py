"""What the parts of the bus promise, as numbers that a measurement can meet or miss."""

from dataclasses import dataclass

TARGET_BYTES = 100
"""Rates were promised for messages of this size; with others they are only reported."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for a value, or for a ratio."""

    bound: float
    unit: str
    at_least: bool

    def is_met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        bound = f"{self.bound:,.0f}".replace(",", " ") if self.bound >= 1000 else f"{self.bound:g}"
        return f"{'≥' if self.at_least else '≤'} {bound} {self.unit}"


def at_least(bound: float, unit: str = "x") -> Target:
    return Target(bound, unit, at_least=True)


def at_most(bound: float, unit: str = "x") -> Target:
    return Target(bound, unit, at_least=False)


MEMORY_END_TO_END = at_least(1_000_000, "messages/s")
REDIS_STREAMS = at_least(8)
REDIS_RAW = at_least(0.5)
SQLITE_RAW = at_least(0.5)
SQLITE_ONE_BY_ONE = at_least(50)
POSTGRES_ONE_BY_ONE = at_least(50)
POSTGRES_HUNDREDS = at_least(3)
QUIET_ROUND_TRIP = at_most(2)
SQLITE_QUIET = at_most(5, "ms")
GROWTH = at_most(50, "MB")
LONG_LOG = at_least(0.8)

BUSMQ_TRAFFIC = at_least(5)
BUSMQ_SINGLE = at_least(10)
BUSMQ_RELIABLE = at_least(10)
BUSMQ_LATENCY = at_most(1)
LAST_CYCLE = at_least(0.9)
MANY_QUEUES = at_least(0.7)

FEED_RATE = at_least(100_000, "messages/s")
FEED_RAW = at_least(0.2)
FAN_OUT_STREAMING = at_most(30, "ms")
FAN_OUT_LONG_POLLING = at_most(120, "ms")
FAN_OUT_BARE = at_most(3)
HELD_MEMORY = at_most(25, "KB")
HELD_HEALTH = at_most(50, "ms")
HTTP_PUBLISH = at_least(0.6)
WORK_CYCLES = at_least(3000, "cycles/s")
WORK_EMPTY = at_least(0.15)
LONG_WORK_QUEUE = at_most(1.5)

BROKER_RAW = at_least(0.3)
TOPICS_STREAMS = at_least(8)
TOPICS_JETSTREAM = at_least(1)
TWO_CONSUMERS = at_least(1.6)

SPARK_ROW_BY_ROW = at_least(5)
SPARK_PARQUET = at_least(0.3)
SPARK_TWO_TASKS = at_least(1.6)
SPARK_PUSH_EACH = at_least(5)
SPARK_STREAM = at_least(0.3)
SPARK_TRICKLE = at_most(500, "ms")
SPARK_GROWTH = at_most(50, "MB")
SPARK_LONG_TOPIC = at_most(1.5)
