import builtins
from collections.abc import Mapping, Sequence

import pytest

from onebus.errors import InvalidUrl, MissingDriver, StoreUnavailable, UnknownScheme
from onebus.stores import create_store
from onebus.stores.memory import MemoryStore
from onebus.stores.sharded import ShardedStore


def test_an_unknown_scheme_is_named_together_with_the_known_ones() -> None:
    with pytest.raises(UnknownScheme, match=r"kafka://.*sqlite://") as caught:
        create_store("kafka://localhost")

    assert caught.value.code == "unknown_scheme"


@pytest.mark.parametrize("url", ["", "bus.db", "sqlite://", "sqlite:///:memory:", "postgresql://host:port/x"])
def test_a_url_that_cannot_be_used_says_what_to_write(url: str) -> None:
    with pytest.raises(InvalidUrl):
        create_store(url)


def test_an_empty_list_of_urls_is_refused() -> None:
    with pytest.raises(InvalidUrl):
        create_store([])


def test_a_list_of_urls_is_one_store() -> None:
    assert isinstance(create_store(["memory://a", "memory://b"]), ShardedStore)
    assert isinstance(create_store("memory://"), MemoryStore)


def test_a_password_is_never_part_of_the_url_that_is_shown() -> None:
    for url in ("postgresql://me:hush@host/db", "mysql://me:hush@host/db", "redis://:hush@host"):
        assert "hush" not in create_store(url).url


@pytest.mark.parametrize(("url", "extra"), [("postgresql://host/db", "postgres"), ("mysql://host/db", "mysql")])
async def test_a_missing_driver_is_named_with_the_command_that_installs_it(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without_drivers(
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        if name in ("psycopg", "pymysql"):
            raise ImportError(name)
        return real_import(name, globals_, locals_, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without_drivers)

    with pytest.raises(MissingDriver, match=rf"pip install 'onebus\[{extra}\]'"):
        await create_store(url).open()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis"])
async def test_a_server_that_is_down_at_the_start_is_told_at_once(scheme: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught:
        await create_store(f"{scheme}://me:hush@127.0.0.1:1/db" if scheme != "redis" else "redis://127.0.0.1:1").open()

    assert "hush" not in str(caught.value)
    assert caught.value.retryable
