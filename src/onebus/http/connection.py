"""The way to the server, for code that waits with await."""

from types import TracebackType
from typing import Final, Self, TypeVar

from onebus.errors import MissingDriver, ServerUnavailable
from onebus.http.exchange import Exchange, check

try:
    import httpx
except ImportError:
    raise MissingDriver("onebus.http needs a client for HTTP. Run: pip install 'onebus[http]'") from None

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8080"
ANSWER_SECONDS: Final = 30.0
"""How long the server may take for an answer that it does not delay on purpose."""


def headers_with(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"} if secret else {}


def request_for(exchange: Exchange[T], client: httpx.Client | httpx.AsyncClient) -> httpx.Request:
    """Return the request that asks what an exchange is about."""
    limits = httpx.Timeout(ANSWER_SECONDS, read=ANSWER_SECONDS + exchange.wait_seconds)
    return client.build_request(
        exchange.method, exchange.path, json=exchange.body, params=exchange.query, timeout=limits
    )


def unavailable(client: httpx.Client | httpx.AsyncClient, error: httpx.TransportError) -> ServerUnavailable:
    return ServerUnavailable(f"{client.base_url} does not answer: {error!r}.")


def read_answer(exchange: Exchange[T], response: httpx.Response) -> T:
    """Return what an answer says, or raise what it says."""
    try:
        answer = response.json() if response.content else None
    except ValueError:
        answer = None
    check(response.status_code, answer)
    return exchange.read(response.status_code, answer)


class Connection:
    """Connections to one server. Use it in ``async with``, or `close` it."""

    def __init__(self, url: str = DEFAULT_URL, *, secret: str = "") -> None:
        self._client = httpx.AsyncClient(base_url=url, headers=headers_with(secret))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connections back. Closing twice does nothing."""
        await self._client.aclose()

    async def ask(self, exchange: Exchange[T]) -> T:
        """Ask the server, and return what it answers.

        Raises:
            ServerUnavailable: it cannot be reached, does not answer in time, or says that it cannot help now.
            RequestFailed: it refuses.
        """
        try:
            response = await self._client.send(request_for(exchange, self._client))
        except httpx.TransportError as error:
            raise unavailable(self._client, error) from error
        return read_answer(exchange, response)
