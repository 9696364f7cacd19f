"""A mark: what a log remembers of the appends of one source, so that none of them happens twice."""

from typing import Final

from msgspec import Struct

from onebus.errors import InvalidArgument
from onebus.log.names import check_name

MAX_NUMBER: Final = 2**53 - 1
"""The largest number that every store keeps exactly."""


class Mark(Struct, frozen=True):
    """Says that an append is number ``number`` of ``source``, whose numbers grow from one append to the next."""

    source: str
    number: int

    def __post_init__(self) -> None:
        check_name(self.source)
        if not 0 <= self.number <= MAX_NUMBER:
            raise InvalidArgument(f"The number of a mark is from 0 to {MAX_NUMBER}, and not {self.number}.")
