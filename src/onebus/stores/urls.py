"""From a URL to the store that answers to it."""

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from onebus.errors import InvalidUrl, UnknownScheme
from onebus.stores.base import Store, StoreOptions
from onebus.stores.memory import MemoryStore


def create_store(url: str | Sequence[str], options: StoreOptions | None = None) -> Store:
    """Return the store for a URL, or one store over several URLs; it is not opened yet.

    Raises:
        InvalidUrl, UnknownScheme: the URL cannot be used.
        MissingDriver: the store's library is not installed.
    """
    if not isinstance(url, str):
        return _sharded(url, options)
    check_scheme(url)
    return _BY_SCHEME[url.partition(":")[0]](url, options)


def check_scheme(url: str) -> None:
    """Check that there is a kind of store that answers to a URL.

    Raises:
        InvalidUrl, UnknownScheme: there is none.
    """
    scheme, separator, _ = url.partition(":")
    if not separator:
        raise InvalidUrl(f"{url!r} is not a URL. Write for example sqlite:///bus.db or redis://localhost.")
    if scheme not in _BY_SCHEME:
        known = ", ".join(f"{name}://" for name in _BY_SCHEME)
        raise UnknownScheme(f"No store answers to {scheme}://. Known are {known}.")


def _memory(url: str, options: StoreOptions | None) -> Store:
    return MemoryStore(urlsplit(url).netloc, options)


def _sql(url: str, options: StoreOptions | None) -> Store:
    from onebus.stores.sql.store import SqlStore

    return SqlStore(url, options)


def _redis(url: str, options: StoreOptions | None) -> Store:
    from onebus.stores.redis.store import RedisStore

    return RedisStore(url, options)


def _sharded(urls: Sequence[str], options: StoreOptions | None) -> Store:
    from onebus.stores.sharded import ShardedStore

    if not urls:
        raise InvalidUrl("A list of store URLs must not be empty.")
    return ShardedStore([create_store(url, options) for url in urls], options)


_BY_SCHEME: dict[str, Callable[[str, StoreOptions | None], Store]] = {
    "memory": _memory,
    "sqlite": _sql,
    "postgresql": _sql,
    "postgres": _sql,
    "mysql": _sql,
    "mariadb": _sql,
    "redis": _redis,
    "rediss": _redis,
    "redis+sentinel": _redis,
    "rediss+sentinel": _redis,
    "redis+cluster": _redis,
    "rediss+cluster": _redis,
}
