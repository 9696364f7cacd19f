import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from onebus import Bus
from onebus.errors import InvalidArgument, InvalidName, NotConnected, NotSerializable
from onebus.objects.persistable import Persistable
from onebus.objects.places import place_of_object
from tests.clock import FakeClock
from tests.eventually import eventually

FIELDS = ("foo", "bar", "zoo")


class Slotted:
    __slots__ = FIELDS

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


@dataclass
class Dated:
    foo: str = ""
    bar: int = 0
    zoo: list[int] = field(default_factory=list)


MAKERS: dict[str, Any] = {"object": SimpleNamespace, "dict": dict, "slots": Slotted, "dataclass": Dated}


def value_of(target: Any, name: str) -> Any:
    return target[name] if isinstance(target, dict) else getattr(target, name)


async def fields_on(bus: Bus, name: str) -> Mapping[str, bytes]:
    """What is stored of an object."""
    record = await bus.link.store.get(place_of_object("persistable", name))
    return {} if record is None else record.fields


# Any object


@pytest.mark.parametrize("kind", MAKERS)
async def test_an_object_is_saved_and_loaded(bus: Bus, other_bus: Bus, name: str, kind: str) -> None:
    make = MAKERS[kind]
    mine = bus.persistify(name, make(foo="hello", bar=1, zoo=[1, 2]), FIELDS)
    assert mine.dirty == ["foo", "bar", "zoo"]
    assert await mine.save() == ["foo", "bar", "zoo"]
    assert mine.dirty == []
    assert await mine.save() == []
    mine.foo = "world"
    assert mine.dirty == ["foo"]
    assert await mine.save() == ["foo"]

    target = make()
    theirs = other_bus.persistify(name, target, FIELDS)
    assert await theirs.load()

    assert (theirs.foo, theirs.bar, theirs.zoo) == ("world", 1, [1, 2])
    assert [value_of(target, one) for one in FIELDS] == ["world", 1, [1, 2]]
    assert theirs.dirty == []


async def test_an_object_stands_for_what_it_was_made_of(local_bus: Bus, name: str) -> None:
    target = {"field": "not persisted"}
    persisted = local_bus.persistify(name, target, ["foo"])

    persisted.foo = "hello"
    persisted.other = 1

    assert target == {"field": "not persisted", "foo": "hello", "other": 1}
    assert persisted.field == "not persisted"
    assert await persisted.save() == ["foo"]
    assert name in repr(persisted)
    with pytest.raises(AttributeError):
        _ = persisted.missing


async def test_values_keep_their_types(bus: Bus, other_bus: Bus, name: str) -> None:
    values = {
        "text": "✓ \0 text",
        "integer": 7,
        "large": 2**60,
        "float": 2.5,
        "whole float": 1.0,
        "true": True,
        "none": None,
        "list": [1, "two", None],
        "dict": {"deep": {"er": []}},
        "empty": "",
    }
    await bus.persistify(name, values, values).save()

    loaded: dict[str, Any] = {}
    assert await other_bus.persistify(name, loaded, values).load()

    assert loaded == values
    assert {key: type(value) for key, value in loaded.items()} == {key: type(value) for key, value in values.items()}


async def test_only_what_has_changed_is_written(bus: Bus, other_bus: Bus, name: str) -> None:
    mine = bus.persistify(name, {"foo": 1, "bar": 1}, ["foo", "bar"])
    await mine.save()
    theirs = other_bus.persistify(name, {}, ["foo", "bar"])
    await theirs.load()
    theirs.foo = 2
    await theirs.save()

    mine.bar = 2
    await mine.save()

    assert await fields_on(bus, name) == {"foo": b"2", "bar": b"2"}
    await mine.load()
    assert (mine.foo, mine.bar) == (2, 2)


async def test_a_change_deep_inside_counts(bus: Bus, name: str) -> None:
    persisted = bus.persistify(name, {"items": [{"count": 1}], "other": 1}, ["items", "other"])
    await persisted.save()

    persisted.items[0]["count"] += 1

    assert persisted.dirty == ["items"]
    assert await persisted.save() == ["items"]
    assert (await fields_on(bus, name))["items"] == b'[{"count":2}]'


async def test_an_object_that_is_not_there_is_left_alone(bus: Bus, name: str) -> None:
    target = {"foo": "mine"}
    persisted = bus.persistify(name, target, ["foo", "bar"])

    assert not await persisted.load()

    assert target == {"foo": "mine"}
    assert persisted.dirty == ["foo"]


async def test_a_missing_property_is_not_saved_and_spoils_nothing(bus: Bus, other_bus: Bus, name: str) -> None:
    mine = bus.persistify(name, SimpleNamespace(foo=1), ["foo", "bar"])
    assert await mine.save() == ["foo"]
    theirs = other_bus.persistify(name, SimpleNamespace(bar="default"), ["foo", "bar"])

    assert await theirs.load()

    assert (theirs.foo, theirs.bar) == (1, "default")
    assert theirs.dirty == ["bar"]


async def test_a_client_loads_only_the_properties_that_it_knows(bus: Bus, other_bus: Bus, name: str) -> None:
    await bus.persistify(name, {"foo": 1, "bar": 2}, ["foo", "bar"]).save()
    target: dict[str, Any] = {}

    assert await other_bus.persistify(name, target, ["foo"]).load()

    assert target == {"foo": 1}


async def test_nothing_is_saved_if_a_value_cannot_be(bus: Bus, name: str) -> None:
    persisted = bus.persistify(name, {"foo": 1, "bar": object()}, ["foo", "bar"])

    with pytest.raises(NotSerializable, match="bar"):
        await persisted.save()

    assert await fields_on(bus, name) == {}
    persisted.bar = 2
    assert await persisted.save() == ["foo", "bar"]


async def test_many_objects_are_saved_and_loaded_at_once(bus: Bus, other_bus: Bus, name: str) -> None:
    saved = await asyncio.gather(
        *(bus.persistify(f"{name}-{number}", {"number": number}, ["number"]).save() for number in range(100))
    )
    assert saved == [["number"]] * 100

    targets: list[dict[str, Any]] = [{} for _ in range(100)]
    loaded = await asyncio.gather(
        *(other_bus.persistify(f"{name}-{number}", targets[number], ["number"]).load() for number in range(100))
    )

    assert loaded == [True] * 100
    assert targets == [{"number": number} for number in range(100)]


async def test_bad_names_and_properties_are_refused(local_bus: Bus, name: str) -> None:
    for bad in ("", "a|b", "new\nline", "x" * 300):
        with pytest.raises(InvalidName):
            local_bus.persistify(bad, {}, ["foo"])
    for bad in ("", ".alive"):
        with pytest.raises(InvalidArgument):
            local_bus.persistify(name, {}, ["foo", bad])


async def test_an_object_needs_a_connected_bus(name: str) -> None:
    persisted = Bus(f"memory://{name}").persistify(name, {"foo": 1}, ["foo"])

    for call in (persisted.save, persisted.load):
        with pytest.raises(NotConnected):
            await call()
    with pytest.raises(NotConnected):
        await persisted.persist(10)


# How long it lives


async def test_an_object_expires_a_minute_after_it_was_saved(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    persisted = timed_bus.persistify(name, {"foo": 1}, ["foo"])
    await persisted.save()
    clock.advance(59)
    assert await persisted.load()

    clock.advance(2)

    assert not await persisted.load()
    assert persisted.foo == 1


async def test_an_object_that_has_expired_is_saved_as_a_whole(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    persisted = timed_bus.persistify(name, {"foo": 1, "bar": 1}, ["foo", "bar"])
    await persisted.save()
    clock.advance(61)
    assert not await persisted.load()

    assert persisted.dirty == ["foo", "bar"]
    assert await persisted.save() == ["foo", "bar"]


async def test_an_object_lives_as_long_as_it_was_told(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    persisted = timed_bus.persistify(name, {"foo": 1}, ["foo"])
    await persisted.save()
    await persisted.persist(ttl=1000)
    await persisted.unpersist()
    await persisted.unpersist()
    clock.advance(999)
    assert await persisted.load()
    persisted.foo = 2
    await persisted.save()
    clock.advance(999)
    assert await persisted.load()

    clock.advance(2)

    assert not await persisted.load()


async def test_persisting_keeps_an_object_alive_until_unpersisted(clock: FakeClock, name: str) -> None:
    async with Bus(f"memory://{name}", clock=clock) as bus:
        persisted = bus.persistify(name, {"foo": 1}, ["foo"])
        await persisted.save()
        await persisted.persist(ttl=0.03)
        for _ in range(3):
            clock.advance(0.02)
            await is_touched(bus, name)
        assert await persisted.load()
        assert persisted.dirty == []

        await persisted.unpersist()
        clock.advance(0.04)

        assert not await persisted.load()


async def test_what_is_persisted_before_it_is_saved_is_kept_alive_from_then_on(clock: FakeClock, name: str) -> None:
    async with Bus(f"memory://{name}", clock=clock) as bus:
        persisted = bus.persistify(name, {"foo": 1}, ["foo"])
        await persisted.persist(ttl=0.03)
        assert await fields_on(bus, name) == {}

        await persisted.save()

        for _ in range(3):
            clock.advance(0.02)
            await is_touched(bus, name)
        assert await persisted.load()


async def test_an_object_is_kept_alive_by_one_task_that_ends_with_the_bus(local_bus: Bus, name: str) -> None:
    persisted = local_bus.persistify(name, {"foo": 1}, ["foo"])

    for _ in range(3):
        await persisted.persist(ttl=10)

    assert [task.get_name() for task in asyncio.all_tasks()].count(f"onebus-persist {name}") == 1
    await local_bus.disconnect()
    assert [task.get_name() for task in asyncio.all_tasks()].count(f"onebus-persist {name}") == 0


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
async def test_a_bad_ttl_is_refused(local_bus: Bus, name: str, bad: float) -> None:
    with pytest.raises(InvalidArgument, match="ttl"):
        await local_bus.persistify(name, {}, ["foo"]).persist(bad)


async def is_touched(bus: Bus, name: str) -> None:
    """Return when an object was kept alive once more."""

    async def version() -> int:
        record = await bus.link.store.get(place_of_object("persistable", name))
        return 0 if record is None else record.version

    before = await version()
    assert before

    async def has_grown() -> bool:
        return await version() > before

    await eventually(has_grown)


# Classes


class Basket(Persistable):
    kind: ClassVar[str] = "basket"
    bare: ClassVar = "bare"
    owner: str
    items: list[int] = []  # noqa: RUF012
    prices: dict[str, float] = {}  # noqa: RUF012
    _private: int = 0


class Cart(Basket):
    wheels: int = 4


class FastCart(Cart):
    wheels: int = 3
    speed: float | None = None


class Mistaken(Persistable):
    owner: int
    items: list[str] = []  # noqa: RUF012


async def test_a_class_keeps_its_annotated_attributes_on_the_bus(bus: Bus, other_bus: Bus, name: str) -> None:
    mine = FastCart(bus, name, owner="me", speed=9.5)
    mine.items.append(1)
    mine._private = 7
    assert mine.dirty == ["owner", "items", "prices", "wheels", "speed"]
    assert await mine.save() == ["owner", "items", "prices", "wheels", "speed"]
    mine.items.append(2)
    assert await mine.save() == ["items"]
    assert await mine.save() == []

    theirs = FastCart(other_bus, name)
    assert await theirs.load()

    assert (theirs.owner, theirs.items, theirs.prices, theirs.wheels, theirs.speed) == ("me", [1, 2], {}, 3, 9.5)
    assert theirs.dirty == []
    assert set(await fields_on(bus, name)) == {"owner", "items", "prices", "wheels", "speed"}


async def test_a_subclass_of_a_subclass_has_the_fields_of_both(local_bus: Bus, name: str) -> None:
    assert (Basket(local_bus, name).items, Cart(local_bus, name).wheels, FastCart(local_bus, name).wheels) == ([], 4, 3)
    with pytest.raises(InvalidArgument, match="wheels"):
        Basket(local_bus, name, wheels=4)


async def test_instances_share_no_defaults(local_bus: Bus, name: str) -> None:
    one, other = Basket(local_bus, name), Basket(local_bus, name)

    one.items.append(1)
    one.prices["apple"] = 1.0

    assert (other.items, other.prices) == ([], {})
    assert (Basket.items, Basket.prices) == ([], {})


async def test_unknown_and_private_keywords_are_refused(local_bus: Bus, name: str) -> None:
    for keyword in ("unknown", "kind", "bare", "_private"):
        with pytest.raises(InvalidArgument, match=keyword):
            Basket(local_bus, name, **{keyword: 1})


async def test_an_attribute_without_a_value_is_not_saved(bus: Bus, name: str) -> None:
    basket = Basket(bus, name)

    assert await basket.save() == ["items", "prices"]

    assert await Basket(bus, name, owner="me").load()
    assert not hasattr(basket, "owner")


async def test_an_absent_object_leaves_the_attributes_alone(bus: Bus, name: str) -> None:
    basket = Basket(bus, name, owner="me", items=[1])

    assert not await basket.load()

    assert (basket.owner, basket.items) == ("me", [1])


async def test_nothing_is_set_if_the_bus_has_another_type(bus: Bus, other_bus: Bus, name: str) -> None:
    await Basket(bus, name, owner="me", items=[]).save()
    mistaken = Mistaken(other_bus, name, owner=5, items=["x"])

    with pytest.raises(NotSerializable, match=r"owner.*another type"):
        await mistaken.load()

    assert (mistaken.owner, mistaken.items) == (5, ["x"])


async def test_nothing_of_a_class_is_saved_if_a_value_cannot_be(bus: Bus, name: str) -> None:
    basket = Basket(bus, name, owner=object())

    with pytest.raises(NotSerializable, match="owner"):
        await basket.save()

    assert await fields_on(bus, name) == {}


async def test_an_instance_is_persisted_and_expires(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    basket = Basket(timed_bus, name, owner="me")
    await basket.persist(ttl=100)
    await basket.save()
    await basket.unpersist()
    clock.advance(99)
    assert await basket.load()

    clock.advance(2)

    assert not await basket.load()
