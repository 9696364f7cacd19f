"""Objects that live on the bus: their fields are saved when they have changed, and loaded by whoever knows the name.

A field has changed when its JSON differs from what was last saved or loaded, so a change deep inside a list counts too.
"""

import asyncio
import copy
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, ClassVar, Final, Protocol, get_origin, get_type_hints

import msgspec

from onebus.errors import InvalidArgument, NotSerializable, StoreUnavailable
from onebus.log.batch import Kind
from onebus.objects.link import Link
from onebus.objects.places import place_of_object
from onebus.payload import pack_json, unpack

DEFAULT_TTL_SECONDS: Final = 60.0
_ALIVE_FIELD: Final = ".alive"
"""A field that is written to keep the others from expiring."""


class Fields:
    """The saved fields of one object: knows what the bus has, and writes what differs."""

    def __init__(self, link: Link, name: str, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise InvalidArgument(f"The properties are a list of names, for example [{names!r}].")
        self.name = name
        self.names = tuple(names)
        self._link = link
        self._record = place_of_object("persistable", name)
        self._saved: dict[str, bytes] = {}
        self._ttl = DEFAULT_TTL_SECONDS
        self._alive: asyncio.Task[None] | None = None
        for field in self.names:
            if not field or field == _ALIVE_FIELD:
                raise InvalidArgument(f"{field!r} cannot be the name of a property.")

    def dirty(self, values: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the fields that differ from what is saved, as JSON.

        Raises:
            NotSerializable: a value cannot be written as JSON.
        """
        changed: dict[str, bytes] = {}
        for field, value in values.items():
            try:
                text = pack_json(value)
            except NotSerializable as error:
                raise NotSerializable(f"{self.name}.{field} cannot be saved. {error}") from error
            if self._saved.get(field) != text:
                changed[field] = text
        return changed

    async def save(self, values: Mapping[str, Any]) -> list[str]:
        """Save what has changed, and return the names of those fields."""
        changed = self.dirty(values)
        if changed:
            await self._link.store.put(self._record, changed, ttl_seconds=self._ttl)
            self._saved.update(changed)
        return list(changed)

    async def load(self) -> Mapping[str, bytes] | None:
        """Return the saved fields as JSON, or None if the object is not on the bus."""
        record = await self._link.store.get(self._record)
        fields = {field: text for field, text in (record.fields if record else {}).items() if field != _ALIVE_FIELD}
        self._saved = {field: text for field, text in fields.items() if field in self.names}
        return self._saved if fields else None

    async def persist(self, ttl: float) -> None:
        if not ttl > 0:
            raise InvalidArgument(f"ttl must be greater than 0 seconds, but is {ttl}.")
        await self.unpersist()
        self._ttl = ttl
        await self._touch()
        self._link.enter(self)
        self._alive = self._link.run(self._stay_alive(), self._link.events, f"onebus-persist {self.name}")

    async def unpersist(self) -> None:
        if self._alive is not None:
            alive, self._alive = self._alive, None
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
            self._link.leave(self)

    async def detach(self) -> None:
        await self.unpersist()

    async def _stay_alive(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            try:
                await self._touch()
            except StoreUnavailable:
                continue

    async def _touch(self) -> None:
        if await self._link.store.get(self._record) is not None:
            await self._link.store.put(self._record, {_ALIVE_FIELD: b"1"}, ttl_seconds=self._ttl)


class Persisted:
    """Any object or mapping, of which some properties are kept on the bus. Create it with `Bus.persistify`.

    It stands for the object: reading and setting attributes reads and sets those of the object, or the items of the
    mapping. A property that the object does not have is not saved.
    """

    __slots__ = ("_fields", "_target")

    _fields: Fields
    _target: Any

    def __init__(self, link: Link, name: str, target: Any, properties: Iterable[str]) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_fields", Fields(link, name, properties))

    async def save(self) -> list[str]:
        """Save the properties that have changed since they were saved or loaded, and return their names.

        Raises:
            NotSerializable: a property cannot be written as JSON; nothing was saved.
        """
        return await self._fields.save(self._values())

    async def load(self) -> bool:
        """Set the properties to what is on the bus, and return whether the object was there."""
        saved = await self._fields.load()
        for field, text in (saved or {}).items():
            setattr(self, field, unpack(text, Kind.JSON))
        return saved is not None

    @property
    def dirty(self) -> list[str]:
        """The names of the properties that `save` would save."""
        return list(self._fields.dirty(self._values()))

    async def persist(self, ttl: float) -> None:
        """Keep the object on the bus until `unpersist`, and for `ttl` seconds after that."""
        await self._fields.persist(ttl)

    async def unpersist(self) -> None:
        """Let the object expire when its time is up."""
        await self._fields.unpersist()

    def _values(self) -> dict[str, Any]:
        target = self._target
        if isinstance(target, Mapping):
            return {field: target[field] for field in self._fields.names if field in target}
        return {field: getattr(target, field) for field in self._fields.names if hasattr(target, field)}

    def __getattr__(self, name: str) -> Any:
        target = object.__getattribute__(self, "_target")
        if isinstance(target, Mapping):
            try:
                return target[name]
            except KeyError:
                raise AttributeError(name) from None
        return getattr(target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(self._target, MutableMapping):
            self._target[name] = value
        else:
            setattr(self._target, name, value)

    def __repr__(self) -> str:
        return f"<Persisted {self._fields.name!r}: {self._target!r}>"


class HasLink(Protocol):
    """A bus, as objects that are created by their class see it."""

    @property
    def link(self) -> Link: ...


class Typed:
    """What the classes have in common whose annotated attributes are kept on the bus, with their types."""

    _types: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._types = {
            name: hint
            for name, hint in get_type_hints(cls).items()
            if not name.startswith("_") and get_origin(hint) is not ClassVar and hint is not ClassVar
        }

    def __init__(self, link: Link, name: str, values: Mapping[str, Any]) -> None:
        unknown = values.keys() - self._types.keys()
        if unknown:
            raise InvalidArgument(f"{type(self).__name__} has no property {', '.join(sorted(unknown))}.")
        self._fields = Fields(link, name, self._types)
        for field in self._types:
            if field in values:
                setattr(self, field, values[field])
            elif hasattr(type(self), field):
                setattr(self, field, copy.deepcopy(getattr(type(self), field)))

    @property
    def dirty(self) -> list[str]:
        """The names of the attributes that `save` would save."""
        return list(self._fields.dirty(self._values()))

    def _values(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self._types if hasattr(self, field)}

    async def _load(self) -> bool:
        saved = await self._fields.load()
        values: dict[str, Any] = {}
        for field, text in (saved or {}).items():
            try:
                values[field] = msgspec.json.decode(text, type=self._types[field])
            except msgspec.ValidationError as error:
                raise NotSerializable(f"{self._fields.name}.{field} on the bus is of another type: {error}.") from error
        for field, value in values.items():
            setattr(self, field, value)
        return saved is not None


class Persistable(Typed):
    """A class whose annotated attributes are kept on the bus, with their types.

    class Cart(Persistable):
        items: int = 0

    cart = Cart(bus, "cart-7")
    """

    def __init__(self, bus: HasLink, name: str, **values: Any) -> None:
        super().__init__(bus.link, name, values)

    async def save(self) -> list[str]:
        """Save the attributes that have changed since they were saved or loaded, and return their names.

        Raises:
            NotSerializable: an attribute cannot be written as JSON; nothing was saved.
        """
        return await self._fields.save(self._values())

    async def load(self) -> bool:
        """Set the attributes to what is on the bus, and return whether the object was there.

        Raises:
            NotSerializable: what is there does not have the type of its attribute; nothing was set.
        """
        return await self._load()

    async def persist(self, ttl: float) -> None:
        """Keep the object on the bus until `unpersist`, and for `ttl` seconds after that."""
        await self._fields.persist(ttl)

    async def unpersist(self) -> None:
        """Let the object expire when its time is up."""
        await self._fields.unpersist()
