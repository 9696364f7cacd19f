"""A dictionary that all processes share: each has it in memory, and all of them agree.

Changes are the messages of a log, and every process applies them in the order of the log, its own included: the last
change wins, and it is the same one everywhere. Now and then somebody writes down what has become of them, so that a
process that comes later need not read the whole past.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from onebus.errors import (
    AlreadyAttached,
    BusError,
    CorruptBatch,
    InvalidArgument,
    MessagesMissed,
    NotAttached,
    StoreUnavailable,
    VersionConflict,
)
from onebus.log.batch import Entry, Kind, decode
from onebus.log.retention import Retention
from onebus.log.writer import LogWriter
from onebus.objects.feeds.names import SiteLookup
from onebus.objects.link import Link
from onebus.objects.places import place_of_object
from onebus.payload import pack_json
from onebus.stores.base import Slice
from onebus.stores.following import RETRY_SECONDS, follow

CHANGES_PER_SUMMARY: Final = 500
KEPT: Final = Retention(max_count=20 * CHANGES_PER_SUMMARY)
"""Many summaries may fail before a change is forgotten that is in none of them."""

Content = dict[str, dict[str, Any]]
"""What is kept, by site and key. The site of a program that has only one is empty."""


Change = tuple[str] | tuple[str, str] | tuple[str, str, Any]
"""One message of the log: all keys of a site go, or a key does, or it gets a value."""


class Summary(Struct, array_like=True):
    """What all changes up to one of them come to."""

    last_id: int
    epoch: str
    content: Content


_read_summary = msgspec.json.Decoder(Summary).decode


class DistributedCache(Mapping[str, Any]):
    """A dictionary of the current site. Create it with `Bus.cache`, and use it in ``async with``.

    Reading is as quick as reading a dictionary, and needs no await. Values are JSON; do not change them in place. A
    change is made when it has been awaited: this process sees it then, and the others as soon as they hear of it.
    """

    def __init__(
        self, link: Link, name: str, *, app_version: str = "", site_id_lookup: SiteLookup | None = None
    ) -> None:
        place = place_of_object("cache", name)
        self.name = name
        self._link = link
        self._log = f"{place}|{app_version}|changes"
        self._record = f"{place}|{app_version}|summary"
        self._site_id_lookup = site_id_lookup
        self._writer = LogWriter(self._append, clock=link.clock, limits=link.limits)
        self._content: Content = {}
        self._applied = 0
        self._epoch = ""
        self._moved = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._computing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    # Two caches with the same content are still two caches.

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    # Life

    async def __aenter__(self) -> Self:
        await self.attach()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.detach()

    async def attach(self) -> None:
        """Load the content, and follow what all processes change."""
        if self._following is not None:
            raise AlreadyAttached(f"The cache {self.name!r} is attached already.")
        await self._load()
        self._link.enter(self)
        self._following = self._link.run(self._follow(), self._link.events, f"onebus-cache {self.name}")
        stat = await self._link.store.stat(self._log)
        if stat is not None:
            await self._until_applied(stat.last_id)

    async def detach(self) -> None:
        """Follow no more; the content that was known stays readable."""
        if self._following is None:
            return
        following, self._following = self._following, None
        self._link.leave(self)
        await self._writer.flush()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        self._moved.set()

    @property
    def is_attached(self) -> bool:
        return self._following is not None

    # Reading

    def __getitem__(self, key: str) -> Any:
        return self._current()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._current()))

    def __len__(self) -> int:
        return len(self._current())

    def _current(self) -> dict[str, Any]:
        return self._content.get(self._site(), {})

    def _site(self) -> str:
        return (self._site_id_lookup() if self._site_id_lookup is not None else None) or ""

    # Changing

    async def set(self, key: str, value: Any) -> None:
        """Give a key a value.

        Raises:
            NotSerializable: the value is not JSON; nothing was changed.
            NotAttached: the cache is not attached.
        """
        await self._change((self._site(), _checked(key), value))

    async def delete(self, key: str) -> Any:
        """Remove a key, and return the value that it had here, or None."""
        value = self.get(key)
        await self._change((self._site(), _checked(key)))
        return value

    async def clear(self) -> None:
        """Remove all keys of the current site."""
        await self._change((self._site(),))

    async def get_or_set(self, key: str, make: Callable[[], Any | Awaitable[Any]]) -> Any:
        """Return the value of a key, and if there is none, give it the one that a plain or async function returns.

        In one process the function is called once, however many ask at the same time.
        """
        place = (self._site(), _checked(key))
        async with self._computing.setdefault(place, asyncio.Lock()):
            if key not in self:
                value = make()
                await self.set(key, await value if inspect.isawaitable(value) else value)
            return self[key]

    async def _change(self, change: Change) -> None:
        if self._following is None:
            raise NotAttached(f"The cache {self.name!r} is not attached. Use it in `async with`.")
        message_id = await self._writer.append(self._log, Entry(pack_json(change), Kind.JSON))
        await self._until_applied(message_id)
        if message_id % CHANGES_PER_SUMMARY == 0:
            await self._summarize()

    async def _append(self, log: str, blob: bytes) -> int:
        return await self._link.store.append(log, blob, retain=KEPT)

    async def _until_applied(self, message_id: int) -> None:
        seconds = self._link.store.options.deadline_seconds
        try:
            async with asyncio.timeout(seconds):
                while self._applied < message_id and self._following is not None:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise StoreUnavailable(
                f"A change of the cache {self.name!r} did not come back within {seconds} s."
            ) from None

    # Following

    async def _follow(self) -> None:
        while True:
            async with aclosing(follow(self._link.store, self._log, after=self._applied)) as slices:
                async for found in slices:
                    first_id = max(found.first_id, found.batches[0].first_id)
                    if found.epoch != self._epoch or first_id > self._applied + 1:
                        # Everything was wiped, or this process was away for so long that changes were forgotten.
                        break
                    self._apply(found)
                    self._moved.set()
            await self._load_when_possible()

    async def _load_when_possible(self) -> None:
        while True:
            try:
                return await self._load()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    def _apply(self, found: Slice) -> None:
        for batch in found.batches:
            for offset, value in enumerate(decode(batch.blob).payloads()):
                message_id = batch.first_id + offset
                if message_id > self._applied:
                    self._applied = message_id
                    self._apply_one(value)

    def _apply_one(self, change: bytes) -> None:
        match msgspec.json.decode(change):
            case [site, key, value]:
                self._content.setdefault(site, {})[key] = value
            case [site, key]:
                self._content.get(site, {}).pop(key, None)
            case [site]:
                self._content.pop(site, None)
            case unknown:
                raise CorruptBatch(f"A change of the cache {self.name!r} cannot be understood: {unknown!r}.")

    # Summaries

    async def _load(self) -> None:
        """Begin with the newest summary, or with nothing."""
        stat = await self._link.store.stat(self._log)
        record = await self._link.store.get(self._record)
        content: Content = {}
        applied = 0
        if record is not None and stat is not None:
            summary = _read_summary(record.fields["summary"])
            if summary.epoch == stat.epoch:
                content, applied = summary.content, summary.last_id
        if stat is not None and applied + 1 < stat.first_id:
            await self._link.events.emit("error", MessagesMissed(self.name, applied + 1, stat.first_id - 1))
            applied = stat.first_id - 1
        self._content, self._applied, self._epoch = content, applied, stat.epoch if stat is not None else ""

    async def _summarize(self) -> None:
        """Write down what is known, unless somebody knows more."""
        try:
            record = await self._link.store.get(self._record)
            version = 0
            if record is not None:
                version, newest = record.version, _read_summary(record.fields["summary"])
                if newest.epoch == self._epoch and newest.last_id >= self._applied:
                    return
            summary = pack_json(Summary(self._applied, self._epoch, self._content))
            await self._link.store.put(self._record, {"summary": summary}, expected=version)
        except VersionConflict:
            return
        except BusError as error:
            # The changes are stored; the next summary will have them.
            await self._link.events.emit("error", error)


def _checked(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidArgument(f"A key of a cache is text, but {key!r} was given.")
    return key
