"""A dictionary that all processes share, for blocking code."""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Self

from onebus.objects.cache import DistributedCache as AsyncCache
from onebus.sync.portal import Portal


class DistributedCache(MutableMapping[str, Any]):
    """A dictionary in the memory of every process; see `onebus.objects.cache.DistributedCache`.

    Reading asks nobody. Writing returns when this process, and the store, have the new value. Use it in ``with``, or
    call `attach` and `detach`. Create it with `Bus.cache`.
    """

    def __init__(self, portal: Portal, cache: AsyncCache) -> None:
        self._portal = portal
        self._cache = cache

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def attach(self) -> None:
        """Load what the cache holds, and follow its changes from now on."""
        self._portal.call(self._cache.attach())

    def detach(self) -> None:
        """Follow no changes any more."""
        self._portal.call(self._cache.detach())

    @property
    def is_attached(self) -> bool:
        return self._cache.is_attached

    def __getitem__(self, key: str) -> Any:
        return self._cache[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cache))

    def __len__(self) -> int:
        return len(self._cache)

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self._cache:
            raise KeyError(key)
        self.delete(key)

    def set(self, key: str, value: Any) -> None:
        """Set a value, here and everywhere."""
        self._portal.call(self._cache.set(key, value))

    def delete(self, key: str) -> Any:
        """Delete a value everywhere, and return it; None if there was none."""
        return self._portal.call(self._cache.delete(key))

    def clear(self) -> None:
        """Delete all values of the current site everywhere."""
        self._portal.call(self._cache.clear())

    def get_or_set(self, key: str, make: Callable[[], Any]) -> Any:
        """Return a value; if there is none, make one in this thread and set it first."""
        if key in self._cache:
            return self._cache[key]
        value = make()
        return self._portal.call(self._cache.get_or_set(key, lambda: value))
