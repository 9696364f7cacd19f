"""A bell tells other processes that logs have grown, and by what, where that is small: a hint, not the delivery."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onebus.stores.news import AnyNews
from onebus.stores.sql.transaction import Transaction

Heard = Callable[[Mapping[str, AnyNews | None] | None], None]
"""Called in the event loop with the logs that have grown and what is known of that, or with None when any may have."""

Lost = Callable[[Exception], None]
"""Called in the event loop when nothing can be heard any more, until the bell is opened again."""

RunTransaction = Callable[[Callable[[Transaction], Any]], Awaitable[Any]]


class Bell(ABC):
    """Rings at other processes, and hears them ring."""

    @abstractmethod
    async def open(self, heard: Heard, lost: Lost, run: RunTransaction) -> None:
        """Begin to hear; return when nothing that is rung from now on is missed. May be called again."""

    @abstractmethod
    async def close(self) -> None: ...

    def prepare(self, transaction: Transaction) -> None:
        """Do what ringing needs within the transaction; called in a worker's thread before the commit."""

    def ring(self, transaction: Transaction) -> None:
        """Tell everybody; called in a worker's thread after the commit, and does not wait."""

    def refresh(self, transaction: Transaction) -> None:
        """Keep this bell known to others; called from time to time while it is open."""
