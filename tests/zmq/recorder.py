"""Our own publisher and consumer, as tests use them."""

from typing import Any

from onebus.zmq import Consumer, Publisher
from tests.eventually import eventually
from tests.zmq.addresses import Addresses


def publisher_of(addresses: Addresses, **options: Any) -> Publisher:
    return Publisher(addresses.publisher, receipt_socket_addr=addresses.receipts, **options)


class Recorder(Consumer):
    """Remembers what it got, for each partition."""

    def __init__(self, addresses: Addresses, **options: Any) -> None:
        super().__init__(addresses.management, addresses.consumer, **options)
        self.got: dict[int, list[Any]] = {}
        self.ready: list[dict[str, Any]] = []
        self.on("message", self._record)
        self.on("ready", self.ready.append)

    def _record(self, _: str, partition: int, messages: list[Any]) -> None:
        self.got.setdefault(partition, []).extend(messages)

    @property
    def total(self) -> int:
        return sum(map(len, self.got.values()))

    async def is_ready(self, *partitions: int) -> None:
        async def told() -> bool:
            return bool(self.ready) and self.ready[-1]["partitions"] == list(partitions)

        await eventually(told)

    async def has(self, count: int) -> dict[int, list[Any]]:
        async def there() -> bool:
            return self.total >= count

        await eventually(there)
        return self.got
