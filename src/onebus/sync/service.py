"""A service for blocking code."""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any, Final

from onebus.errors import InvalidArgument
from onebus.objects.service import DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_SECONDS
from onebus.objects.service import Service as AsyncService
from onebus.payload import Data
from onebus.sync.events import Emitter
from onebus.sync.iteration import iterate
from onebus.sync.portal import Portal

Handler = Callable[[Any], Any]
"""A plain function that takes the data of a request and returns the reply, or a generator that yields several."""

_END: Final = object()


class Service(Emitter):
    """A service of the bus, to serve or to use; see `onebus.objects.service.Service`. Create it with `Bus.service`."""

    def __init__(self, portal: Portal, service: AsyncService) -> None:
        super().__init__(portal, service.events)
        self._service = service

    @property
    def name(self) -> str:
        return self._service.name

    # Serving

    @property
    def is_serving(self) -> bool:
        return self._service.is_serving

    def serve(
        self,
        handler: Handler,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        max: int | None = None,  # noqa: A002
    ) -> None:
        """Answer requests in the background until `stop` is called; see `onebus.objects.service.Service.serve`.

        Up to ``concurrency`` requests are handled at a time, each in a thread of its own: with more than one, the
        handler has to be safe for that.
        """
        self._portal.call(self._service.serve(self._in_threads(handler), concurrency=concurrency, max=max))

    def stop(self, grace: float = 10.0) -> None:
        """Take no more requests; see `onebus.objects.service.Service.stop`."""
        self._portal.call(self._service.stop(grace))

    def _in_threads(self, handler: Handler) -> Handler:
        if inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler):
            raise InvalidArgument("A blocking service is served by a plain function; async ones are for onebus.Bus.")
        if inspect.isgeneratorfunction(handler):
            return lambda data: self._each_of(handler(data))
        return lambda data: self._portal.in_worker(handler, data)

    async def _each_of(self, replies: Iterator[Any]) -> AsyncGenerator[Any]:
        while (reply := await self._portal.in_worker(next, replies, _END)) is not _END:
            yield reply

    # Requesting

    def request(self, data: Data, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Any:
        """Ask the service, and return its reply; see `onebus.objects.service.Service.request`."""
        return self._portal.call(self._service.request(data, timeout))

    def stream(self, data: Data, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Generator[Any]:
        """Ask the service, and iterate over its replies; see `onebus.objects.service.Service.stream`."""
        return iterate(self._portal, self._service.stream(data, timeout))

    def notify(self, data: Data, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Send a request that needs no reply; see `onebus.objects.service.Service.notify`."""
        self._portal.call(self._service.notify(data, timeout))

    def disconnect(self, grace: float = 10.0) -> None:
        """Stop serving and asking; see `onebus.objects.service.Service.disconnect`."""
        self._portal.call(self._service.disconnect(grace))

    def detach(self) -> None:
        """Do the same as `disconnect`, at once."""
        self._portal.call(self._service.detach())
