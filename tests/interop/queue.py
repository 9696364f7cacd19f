"""Publishers and consumers of raintank-queue, in Node.js."""

from contextlib import AbstractAsyncContextManager

from tests.faults.program import Program
from tests.interop.script import running_script
from tests.services import BrokerServer


def consuming(broker: BrokerServer, topic: str, group: str) -> AbstractAsyncContextManager[Program]:
    """Run a consumer that tells what it gets; see queue.js."""
    return running_script("queue.js", "consume", broker.management, broker.consumers, topic, group)


async def publish(broker: BrokerServer, topic: str, numbers: range, *, partitions: int) -> None:
    """Publish numbers with a publisher of its own."""
    arguments = (topic, str(partitions), str(numbers.start), str(numbers.stop))
    async with running_script("queue.js", "publish", broker.publishers, *arguments) as program:
        assert await program.wait() == 0
