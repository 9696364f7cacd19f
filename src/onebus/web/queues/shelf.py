"""The queues that are open in this process."""

import asyncio
from collections import OrderedDict

from onebus.bus import Bus
from onebus.objects.workqueue import WorkQueue
from onebus.web.queues.settings import QueueSettings


class QueueShelf:
    """Opens queues when they are asked for, and closes some that nobody needs when there are too many."""

    def __init__(self, bus: Bus, settings: QueueSettings) -> None:
        self._bus = bus
        self._settings = settings
        self._queues: OrderedDict[str, WorkQueue] = OrderedDict()
        self._opening = asyncio.Lock()

    def find(self, name: str) -> WorkQueue | None:
        """Return a queue if it is open."""
        queue = self._queues.get(name)
        if queue is None or not queue.is_open:
            return None
        self._queues.move_to_end(name)
        return queue

    async def get(self, name: str) -> WorkQueue:
        """Return a queue that is open.

        Raises:
            InvalidName: no queue can have this name.
        """
        queue = self.find(name)
        if queue is None:
            async with self._opening:
                queue = self.find(name) or await self._open(name)
        return queue

    async def close(self) -> None:
        """Close all of them; who waits for a message is sent away."""
        async with self._opening:
            queues = list(self._queues.values())
            await asyncio.gather(*(queue.close() for queue in queues))

    async def _open(self, name: str) -> WorkQueue:
        settings = self._settings
        queue = self._bus.work_queue(name, lease_seconds=settings.pending_timeout, max_attempts=settings.max_attempts)
        await queue.open()
        self._queues[name] = queue
        if len(self._queues) > settings.max_open_queues:
            await self._close_one(queue)
        return queue

    async def _close_one(self, newest: WorkQueue) -> None:
        for name, queue in self._queues.items():
            if queue.is_idle and queue is not newest:
                del self._queues[name]
                await queue.close()
                return
