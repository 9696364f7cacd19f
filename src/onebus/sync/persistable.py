"""Objects that live on the bus, for blocking code."""

from typing import Any, Protocol

from onebus.bus import Bus as AsyncBus
from onebus.objects.persistable import Persisted as AsyncPersisted
from onebus.objects.persistable import Typed
from onebus.sync.portal import Portal


class Persisted:
    """Any object or mapping, of which some properties are kept on the bus. Create it with `Bus.persistify`.

    It stands for the object; see `onebus.objects.persistable.Persisted`.
    """

    __slots__ = ("_persisted", "_portal")

    _persisted: AsyncPersisted
    _portal: Portal

    def __init__(self, portal: Portal, persisted: AsyncPersisted) -> None:
        object.__setattr__(self, "_portal", portal)
        object.__setattr__(self, "_persisted", persisted)

    def save(self) -> list[str]:
        """Save the properties that have changed; see `onebus.objects.persistable.Persisted.save`."""
        return self._portal.call(self._persisted.save())

    def load(self) -> bool:
        """Set the properties to what is on the bus; see `onebus.objects.persistable.Persisted.load`."""
        return self._portal.call(self._persisted.load())

    @property
    def dirty(self) -> list[str]:
        """The names of the properties that `save` would save."""
        return self._persisted.dirty

    def persist(self, ttl: float) -> None:
        """Keep the object on the bus until `unpersist`, and for `ttl` seconds after that."""
        self._portal.call(self._persisted.persist(ttl))

    def unpersist(self) -> None:
        """Let the object expire when its time is up."""
        self._portal.call(self._persisted.unpersist())

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_persisted"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._persisted, name, value)

    def __repr__(self) -> str:
        return repr(self._persisted)


class BlockingBus(Protocol):
    """A bus, as objects that are created by their class see it."""

    portal: Portal
    wrapped: AsyncBus


class Persistable(Typed):
    """A class whose annotated attributes are kept on the bus, with their types; see `onebus.Persistable`."""

    def __init__(self, bus: BlockingBus, name: str, **values: Any) -> None:
        self._portal = bus.portal
        super().__init__(bus.wrapped.link, name, values)

    def save(self) -> list[str]:
        """Save the attributes that have changed; see `onebus.Persistable.save`."""
        return self._portal.call(self._fields.save(self._values()))

    def load(self) -> bool:
        """Set the attributes to what is on the bus; see `onebus.Persistable.load`."""
        return self._portal.call(self._load())

    def persist(self, ttl: float) -> None:
        """Keep the object on the bus until `unpersist`, and for `ttl` seconds after that."""
        self._portal.call(self._fields.persist(ttl))

    def unpersist(self) -> None:
        """Let the object expire when its time is up."""
        self._portal.call(self._fields.unpersist())
