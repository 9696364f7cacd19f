"""The headers of a request, of which few are ever looked at: none is decoded before."""

from collections.abc import Iterator, Mapping
from typing import TypeVar, overload

T = TypeVar("T")


class Headers(Mapping[str, str]):
    """Headers by their names, in any case."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.lower().encode("latin-1")].decode("latin-1")

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, /, default: str | T) -> str | T: ...
    def get(self, name: str, /, default: T | None = None) -> str | T | None:
        """Return a header, or something else if there is no such header."""
        value = self._raw.get(name.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode("latin-1") in self._raw

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)
