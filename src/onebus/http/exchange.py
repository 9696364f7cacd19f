"""What is asked over HTTP, and how its answers are read; how they travel is left to others.

A queue without a name is asked as the first clients of such a server did: the answers have status 200, and an ``err``
if something went wrong. A queue by its name is asked with leases, and answers with a status.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from onebus.errors import RequestFailed, ServerUnavailable
from onebus.http.message import HttpMessage

T = TypeVar("T")

DEFAULT_QUEUE: Final = "messages"
"""The name of the queue without a name, unless the server was told another one."""

GONE: Final = 409
UNAVAILABLE: Final = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[T]):
    """A request, and how to read the answer, which is given as its status and its JSON."""

    method: str
    path: str
    read: Callable[[int, Any], T]
    body: Any = None
    query: Mapping[str, str] | None = None
    wait_seconds: float = 0.0
    """How long the server may take on purpose."""


class Words(Protocol):
    """How to ask a queue."""

    def push(self, payload: Any) -> Exchange[int]: ...

    def next(self, timeout: float | None, wait: float) -> Exchange[HttpMessage | None]: ...

    def done(self, message_id: int, lease: str) -> Exchange[bool]: ...


class WordsOfOne:
    """How to ask the queue without a name."""

    def push(self, payload: Any) -> Exchange[int]:
        return Exchange("POST", "/message/new", lambda _, answer: int(_good(answer)["id"]), {"payload": payload})

    def next(self, timeout: float | None, wait: float) -> Exchange[HttpMessage | None]:
        return Exchange("GET", "/message/next", lambda _, answer: _single(answer), query=_query(timeout=timeout))

    def done(self, message_id: int, lease: str) -> Exchange[bool]:
        def read(_: int, answer: Any) -> bool:
            return bool(answer.get("status") == "processed")

        return Exchange("POST", f"/message/{message_id}/status/done", read)


class WordsOfMany:
    """How to ask a queue by its name."""

    def __init__(self, queue: str) -> None:
        self._path = f"/queues/{quote(queue, safe='')}/messages"

    def push(self, payload: Any) -> Exchange[int]:
        return Exchange("POST", self._path, lambda _, answer: int(answer["ids"][0]), {"data": payload})

    def next(self, timeout: float | None, wait: float) -> Exchange[HttpMessage | None]:
        exchange = self.take(1, timeout, wait)
        return Exchange(
            exchange.method,
            exchange.path,
            lambda status, answer: next(iter(exchange.read(status, answer)), None),
            query=exchange.query,
            wait_seconds=wait,
        )

    def take(self, limit: int, timeout: float | None, wait: float) -> Exchange[list[HttpMessage]]:
        def read(_: int, answer: Any) -> list[HttpMessage]:
            return [_handed(one) for one in answer["messages"]]

        query = _query(limit=limit, timeout=timeout, wait=wait or None)
        return Exchange("POST", f"{self._path}/next", read, query=query, wait_seconds=wait)

    def done(self, message_id: int, lease: str) -> Exchange[bool]:
        return self._change(message_id, "done", {"lease": lease})

    def done_many(self, messages: Sequence[HttpMessage]) -> Exchange[set[int]]:
        """Ask for the ids of those that were not held any more."""
        body = {"messages": [{"id": message.id, "lease": message.lease} for message in messages]}
        return Exchange("POST", f"{self._path}/done", lambda _, answer: set(answer["lost"]), body)

    def release(self, message: HttpMessage, delay: float) -> Exchange[bool]:
        return self._change(message.id, "release", {"lease": message.lease, "delay": delay})

    def extend(self, message: HttpMessage, timeout: float) -> Exchange[bool]:
        return self._change(message.id, "extend", {"lease": message.lease, "timeout": timeout})

    def _change(self, message_id: int, action: str, body: Any) -> Exchange[bool]:
        return Exchange("POST", f"{self._path}/{message_id}/{action}", lambda status, _: status != GONE, body)


def words_for(queue: str | None) -> Words:
    return WordsOfOne() if queue is None else WordsOfMany(queue)


def check(status: int, answer: Any) -> None:
    """Raise what a status says, if it says that the request was not carried out for another reason than a lost lease.

    Raises:
        ServerUnavailable: the same request may succeed later.
        RequestFailed: it will not.
    """
    if status < 400 or status == GONE:
        return
    problem = answer.get("error", {}) if isinstance(answer, dict) else {}
    text = problem.get("text", f"The server answered with status {status}.")
    if status in UNAVAILABLE:
        raise ServerUnavailable(text)
    raise RequestFailed(text, problem.get("code", f"status_{status}"))


def _good(answer: Any) -> Any:
    if "err" in answer:
        raise RequestFailed(answer["err"].get("message", ""), answer["err"].get("code", "error"))
    return answer


def _single(answer: Any) -> HttpMessage | None:
    if answer.get("err", {}).get("code") == "queue_empty":
        return None
    message = _good(answer)
    return HttpMessage(message["id"], message["payload"])


def _handed(message: Any) -> HttpMessage:
    is_base64 = message.get("encoding") == "base64"
    return HttpMessage(
        id=message["id"],
        payload=b64decode(message["data"]) if is_base64 else message["data"],
        attempts=message["attempts"],
        lease=message["lease"],
        key=message.get("key"),
        headers=message.get("headers", {}),
    )


def _query(**parameters: float | None) -> dict[str, str]:
    return {name: f"{value:g}" for name, value in parameters.items() if value is not None}
