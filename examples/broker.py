"""A broker, a publisher and two consumers that share a topic, in one program.

Elsewhere each would be a program of its own, in Python or, as clients of raintank-queue, in Node.js.
Run: python examples/broker.py
"""

import asyncio
import socket
import tempfile

from onebus.zmq import Broker, Consumer, Publisher

READINGS = 20


def free_port() -> int:
    """Return a port that nobody uses; a real broker has its well-known ones."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def main() -> None:
    to_consumers, to_publishers, receipts = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
    management = f"http://127.0.0.1:{free_port()}"
    got: dict[int, list[int]] = {}
    everything = asyncio.Event()

    def handle(topic: str, partition: int, messages: list[int]) -> None:
        got.setdefault(partition, []).extend(messages)
        if sum(map(len, got.values())) == READINGS:
            everything.set()

    with tempfile.TemporaryDirectory() as folder:
        async with (
            Broker(
                f"sqlite:///{folder}/bus.db",
                to_consumers,
                to_publishers,
                management,
                receipt_socket_addr=receipts,
                partitions=4,
                start="beginning",
            ),
            Publisher(to_publishers, receipt_socket_addr=receipts) as publisher,
            Consumer(management, to_consumers) as one,
            Consumer(management, to_consumers) as other,
        ):
            await asyncio.gather(*(publisher.send("readings", number % 4, [number]) for number in range(READINGS)))
            print(f"{READINGS} readings are stored")
            for consumer in (one, other):
                consumer.on("message", handle)
                await consumer.join("readings", "thermometer")
            await everything.wait()
    for partition, readings in sorted(got.items()):
        print(f"partition {partition}, in order: {readings}")


if __name__ == "__main__":
    asyncio.run(main())
