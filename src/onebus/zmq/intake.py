"""What publishers send: it is stored, and only then can anybody get it.

While some arrays of a partition are on their way to the store, the next ones gather, so that few large batches are
stored, in the order in which their messages came. A batch leaves when the one before it is stored: if that one fails
and has to be tried again, nothing can come before it.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final, cast

from msgspec import Raw, Struct

from onebus.bus import Bus
from onebus.errors import BusError, InvalidArgument
from onebus.log.batch import Kind, encode_values
from onebus.log.retention import Retention
from onebus.log.writer import WriterLimits
from onebus.objects.topics.topic import Topic
from onebus.zmq.echoes import Echoes
from onebus.zmq.frames import Published, read_published

_log = logging.getLogger("onebus")

MAX_WAITING: Final = 1000
"""How many frames wait to be stored; more wait in the sockets."""
MAX_TOPICS: Final = 10_000
RETRY_SECONDS: Final = 0.5

Answer = Callable[[BusError | None], None]
Place = tuple[str, int]


class Piece(Struct, eq=False, gc=False):
    """Messages that are stored together."""

    messages: list[Raw]
    size: int
    """So many bytes at most."""
    request: "Request"
    """What they are a part of."""


class Load:
    """Pieces for one place that are stored as one batch."""

    def __init__(self, piece: Piece) -> None:
        self.pieces = [piece]
        self._count = len(piece.messages)
        self._size = piece.size
        self._batch: bytes | None = None
        self._array = b""

    def add(self, piece: Piece, limits: WriterLimits) -> bool:
        """Take one more piece, and return whether there is room for it."""
        count, size = self._count + len(piece.messages), self._size + piece.size
        if self._batch is not None or count > limits.max_batch_messages or size > limits.max_batch_bytes:
            return False
        self.pieces.append(piece)
        self._count, self._size = count, size
        return True

    def seal(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return all messages as they are stored, and as the array that goes out; nothing can be added any more."""
        if self._batch is None:
            messages = list(chain.from_iterable([piece.messages for piece in self.pieces]))
            # They are as good as bytes to whoever joins them.
            values = cast("list[bytes]", messages)
            self._batch = encode_values(values, kind=Kind.JSON, now_ms=now_ms) if values else b""
            self._array = _array_of(values) if values else b""
        return self._batch, self._array


class Request:
    """One frame of one publisher, until all its arrays are stored."""

    def __init__(self, answer: Answer, arrays: int) -> None:
        self._answer = answer
        self._open = arrays
        self._error: BusError | None = None
        if not arrays:
            answer(None)

    def split(self, pieces: int) -> None:
        """Hear that one array is stored in so many pieces."""
        self._open += pieces - 1

    def finish(self, error: BusError | None) -> None:
        """Hear of one array that it is stored, or why it never will be."""
        self._open -= 1
        self._error = self._error or error
        if self._open == 0:
            self._answer(self._error)


class Intake:
    """Stores what publishers send."""

    def __init__(self, bus: Bus, partitions: int, retention: Retention, echoes: Echoes) -> None:
        self._bus = bus
        self._echoes = echoes
        self._partitions = partitions
        self._retention = retention
        self._limits = bus.link.limits
        self._topics: OrderedDict[str, Topic] = OrderedDict()
        self._turn = 0
        self._open = 0
        self._room = asyncio.Event()
        self._waiting: dict[Place, deque[Load]] = {}
        self._storing: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None
        self.refused = 0
        """How many frames or arrays were refused, because they make no sense or cannot be stored."""

    async def put(self, frame: bytes, answer: Answer) -> None:
        """Take a frame; `answer` is called when it is stored, or with the reason why it never will be."""
        try:
            arrays = read_published(frame)
        except BusError as error:
            self._refuse(error)
            answer(error)
            return
        while self._open >= MAX_WAITING:
            self._room.clear()
            await self._room.wait()
        self._open += 1
        request = Request(partial(self._done, answer), len(arrays))
        for array in arrays:
            try:
                place = await self._place(array)
                pieces = self._pieces(array.payload, len(frame))
            except BusError as error:
                self._refuse(error)
                request.finish(error)
            else:
                request.split(len(pieces))
                for messages, size in pieces:
                    self._accept(place, Piece(messages, size, request))

    def _done(self, answer: Answer, error: BusError | None) -> None:
        self._open -= 1
        self._room.set()
        answer(error)

    async def partitions_of(self, name: str, partition: int | None = None) -> int:
        """Return how many partitions a topic has, which comes into being if there is none.

        If it seems not to have `partition`, this looks whether it was added meanwhile.

        Raises:
            InvalidName: no topic can have this name.
        """
        topic = self._topic(name)
        while True:
            try:
                return (await topic.known(partition)).partitions
            except BusError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def work(self) -> None:
        """Store what comes, for ever; raise what should never happen."""
        self._failed = asyncio.get_running_loop().create_future()
        try:
            await self._failed
        finally:
            for task in self._storing:
                task.cancel()
            await asyncio.gather(*self._storing, return_exceptions=True)

    def _pieces(self, messages: list[Raw], size: int) -> list[tuple[list[Raw], int]]:
        """Return the messages of an array of at most `size` bytes in their order, in pieces that fit into batches.

        Raises:
            PayloadTooLarge: one of them can never be stored.
        """
        limits = self._limits
        if len(messages) <= limits.max_batch_messages and size <= min(limits.max_batch_bytes, limits.max_message_bytes):
            return [(messages, size)]
        sizes = list(map(len, messages))
        limits.check(max(sizes, default=0))
        return list(_cut(messages, sizes, limits))

    def _accept(self, place: Place, piece: Piece) -> None:
        waiting = self._waiting.get(place)
        if waiting is None:
            waiting = self._waiting[place] = deque([Load(piece)])
            task = asyncio.create_task(self._store(place, waiting), name=f"onebus-intake {place}")
            self._storing.add(task)
            task.add_done_callback(self._stored)
        elif not waiting:
            waiting.append(Load(piece))
        elif not waiting[-1].add(piece, self._limits):
            # While the one before it is on its way there is time to make it ready.
            waiting[-1].seal(self._bus.link.clock())
            waiting.append(Load(piece))

    def _stored(self, task: "asyncio.Task[None]") -> None:
        self._storing.discard(task)
        failed = self._failed
        if (
            not task.cancelled()
            and (error := task.exception()) is not None
            and failed is not None
            and not failed.done()
        ):
            failed.set_exception(error)

    async def _place(self, array: Published) -> Place:
        number = array.number
        believed = array.partitions
        partitions = await self.partitions_of(array.topic, number if believed is None else believed - 1)
        if believed not in (None, partitions):
            raise InvalidArgument(f"{array.topic!r} has {partitions} partitions, and not {believed}.")
        if number is None:
            self._turn += 1
            number = self._turn % partitions
        if not 0 <= number < partitions:
            raise InvalidArgument(f"{array.topic!r} has the partitions 0 to {partitions - 1}, and not {number}.")
        return array.topic, number

    async def _store(self, place: Place, waiting: "deque[Load]") -> None:
        try:
            while waiting:
                await self._store_load(place, waiting.popleft())
        finally:
            del self._waiting[place]

    async def _store_load(self, place: Place, load: Load) -> None:
        """Store a load, however long that takes."""
        while (error := await self._append(place, load)) is not None and error.retryable:
            _log.warning("messages for %s wait until they can be stored: %s", place[0], error)
            await asyncio.sleep(RETRY_SECONDS)
        if error is not None and len(load.pieces) > 1:
            # One of them cannot be stored, and the others must not suffer for it.
            for piece in load.pieces:
                await self._store_load(place, Load(piece))
            return
        if error is not None:
            self._refuse(error)
        for piece in load.pieces:
            piece.request.finish(error)

    async def _append(self, place: Place, load: Load) -> BusError | None:
        name, number = place
        try:
            batch, array = load.seal(self._bus.link.clock())
            if batch:
                self._echoes.keep(batch, array)
                await self._topic(name).append(batch, number)
        except BusError as error:
            return error
        return None

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._bus.topic(name, partitions=self._partitions, retention=self._retention)
            self._topics[name] = topic
            if len(self._topics) > MAX_TOPICS:
                self._topics.popitem(last=False)
        return topic

    def _refuse(self, error: BusError) -> None:
        self.refused += 1
        _log.warning("a frame was refused: %s", error)


def _array_of(values: list[bytes]) -> bytes:
    """Return values that are JSON as one array, without a second copy of what may be a megabyte."""
    if len(values) == 1:
        return b"[%b]" % values[0]
    return b",".join([b"[%b" % values[0], *values[1:-1], b"%b]" % values[-1]])


def _cut(messages: list[Raw], sizes: list[int], limits: WriterLimits) -> Iterator[tuple[list[Raw], int]]:
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == limits.max_batch_messages or total + size > limits.max_batch_bytes):
            yield messages[start:index], total
            start, total = index, 0
        total += size
    yield messages[start:], total
