"""The dictionary that all processes share, on every store."""

import asyncio
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import AlreadyAttached, InvalidArgument, NotAttached, NotSerializable
from onebus.log.retention import Retention
from onebus.objects import cache as caches
from onebus.objects.cache import DistributedCache
from tests.backings import on_async_stores
from tests.objects.conftest import Connect
from tests.objects.hearing import comes_true

pytestmark = on_async_stores


async def test_a_change_is_seen_at_once_here_and_soon_elsewhere(bus: Bus, connect: Connect, name: str) -> None:
    other_bus = await connect()
    async with bus.cache(name) as here, other_bus.cache(name) as there:
        await here.set("colours", ["red", {"dark": "blue"}])
        await here.set("nothing", None)

        assert here["colours"] == ["red", {"dark": "blue"}]
        assert dict(here) == {"colours": ["red", {"dark": "blue"}], "nothing": None}
        await comes_true(lambda: dict(there) == dict(here))
        assert (len(there), "colours" in there, there.get("missing", 7)) == (2, True, 7)

        assert await there.delete("colours") == ["red", {"dark": "blue"}]
        assert await there.delete("colours") is None
        await comes_true(lambda: dict(here) == {"nothing": None})

        await there.clear()
        assert dict(there) == {}
        await comes_true(lambda: not here)


async def test_a_process_that_comes_later_starts_with_the_content(bus: Bus, connect: Connect, name: str) -> None:
    async with bus.cache(name) as cache:
        for number in range(5):
            await cache.set(f"key {number}", number)
        await cache.delete("key 3")
    other_bus = await connect()

    async with other_bus.cache(name) as cache:
        assert dict(cache) == {"key 0": 0, "key 1": 1, "key 2": 2, "key 4": 4}


async def test_writers_at_once_agree_on_the_last_value(bus: Bus, connect: Connect, name: str) -> None:
    other_bus = await connect()
    async with bus.cache(name) as one, other_bus.cache(name) as other:
        for _ in range(5):
            await asyncio.gather(
                *(
                    cache.set(key, f"{number} of {cache is one}")
                    for key in "abc"
                    for cache in (one, other)
                    for number in range(3)
                )
            )
        await one.set("end", True)
        await comes_true(lambda: "end" in other)

        assert dict(one) == dict(other)


async def test_caches_of_other_names_and_versions_are_others(bus: Bus, name: str) -> None:
    async with bus.cache(name) as one, bus.cache(f"{name}2") as two, bus.cache(name, app_version="2") as newer:
        await one.set("a", 1)

        assert (dict(one), dict(two), dict(newer)) == ({"a": 1}, {}, {})


async def test_each_site_has_its_own_content(connect: Connect, name: str) -> None:
    site = "a"
    bus = await connect(site_id_lookup=lambda: site)
    async with bus.cache(name) as cache:
        await cache.set("k", 1)
        site = "b"
        assert dict(cache) == {}
        await cache.set("k", 2)
        await cache.clear()
        site = "a"
        assert dict(cache) == {"k": 1}


async def test_a_missing_value_is_made_once_in_a_process(bus: Bus, name: str) -> None:
    made: list[str] = []

    async def make() -> str:
        await asyncio.sleep(0)
        made.append("made")
        return "value"

    async with bus.cache(name) as cache:
        assert await asyncio.gather(*(cache.get_or_set("k", make) for _ in range(5))) == ["value"] * 5
        assert await cache.get_or_set("k", lambda: "other") == "value"
        assert await cache.get_or_set("plain", lambda: 3) == 3
    assert made == ["made"]


async def test_what_is_no_json_changes_nothing(bus: Bus, name: str) -> None:
    async with bus.cache(name) as cache:
        with pytest.raises(NotSerializable):
            await cache.set("k", object())
        with pytest.raises(InvalidArgument):
            await cache.set(1, "k")  # type: ignore[arg-type]
        assert dict(cache) == {}


async def test_only_an_attached_cache_can_be_changed(bus: Bus, name: str) -> None:
    cache = bus.cache(name)
    with pytest.raises(NotAttached):
        await cache.set("k", 1)
    async with cache:
        await cache.set("k", 1)
        with pytest.raises(AlreadyAttached):
            await cache.attach()
    assert cache["k"] == 1
    with pytest.raises(NotAttached):
        await cache.clear()


async def test_a_long_past_is_summed_up_for_those_who_come_later(
    bus: Bus, connect: Connect, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "CHANGES_PER_SUMMARY", 5)
    monkeypatch.setattr(caches, "KEPT", Retention(max_count=10))
    async with bus.cache(name) as cache:
        await cache.set("first", "still here")
        for number in range(50):
            await cache.set("number", number)
        other_bus = await connect()

        async with other_bus.cache(name) as other:
            assert dict(other) == {"first": "still here", "number": 49}
            await other.set("number", 50)
            await comes_true(lambda: cache["number"] == 50)


async def test_a_process_that_was_away_for_too_long_loads_the_summary(
    bus: Bus, connect: Connect, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "CHANGES_PER_SUMMARY", 5)
    monkeypatch.setattr(caches, "KEPT", Retention(max_count=10))
    slow_bus = await connect()
    async with bus.cache(name) as cache, slow_bus.cache(name) as slow:
        await cache.set("first", 1)
        await comes_true(lambda: "first" in slow)
        forget_everything(slow)
        for number in range(50):
            await cache.set("number", number)
        await cache.set("last", True)

        await comes_true(lambda: dict(slow) == dict(cache))


def forget_everything(cache: DistributedCache) -> None:
    """Let a cache believe that it has read nothing yet: it then finds that changes were forgotten meanwhile."""
    cache._applied = 0
    cache._content = {}


async def test_when_everything_is_wiped_all_begin_anew(bus: Bus, connect: Connect, name: str) -> None:
    other_bus = await connect()
    async with bus.cache(name) as one, other_bus.cache(name) as other:
        await one.set("old", 1)
        await comes_true(lambda: "old" in other)
        await bus.link.store.drop(one._log)

        await one.set("new", 2)

        expected: dict[str, Any] = {"new": 2}
        await comes_true(lambda: dict(one) == dict(other) == expected)
