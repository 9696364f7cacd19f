"""The places in which the contract's tests keep their logs, one kind per store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from onebus.stores import create_store
from onebus.stores.base import Store, StoreOptions

KINDS = ("memory", "sqlite", "postgres", "mariadb", "redis", "redis-cluster", "redis-sentinel", "sharded")

BUS_KINDS = ("memory", "sqlite", "postgres", "mariadb", "redis", "redis-cluster", "sharded")
"""Those on which everything that is built on logs is tried."""

on_async_stores = pytest.mark.parametrize(
    "backing", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in BUS_KINDS], indirect=True
)
"""For what blocking code does not have."""


class Backing:
    """Opens any number of stores on one place and closes them after the test."""

    def __init__(self, kind: str, fixture: Callable[[str], Any]) -> None:
        self.kind = kind
        self._urls = _urls(kind.removesuffix("-blocking"), fixture)
        self._stores: list[Store] = []

    @property
    def url(self) -> str | list[str]:
        return self._urls[0] if len(self._urls) == 1 else self._urls

    async def open(self, options: StoreOptions | None = None) -> Store:
        store = create_store(self.url, options)
        await store.open()
        self._stores.append(store)
        return store

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


def _urls(kind: str, fixture: Callable[[str], Any]) -> list[str]:
    match kind:
        case "memory":
            return [f"memory://{uuid4().hex}"]
        case "sqlite":
            folder: Path = fixture("tmp_path")
            return [f"sqlite:///{folder}/bus.db"]
        case "postgres":
            return [fixture("postgres").url]
        case "mariadb":
            return [fixture("mariadb").url]
        case "redis":
            return [fixture("redis").url]
        case "redis-cluster":
            return [fixture("redis_cluster").url]
        case "redis-sentinel":
            return [fixture("redis_sentinel").url]
        case "sharded":
            sqlite, memory = _urls("sqlite", fixture), _urls("memory", fixture)
            return [*sqlite, *memory, fixture("redis").url]
    raise ValueError(kind)
