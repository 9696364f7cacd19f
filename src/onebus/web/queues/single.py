"""The routes of one queue that any HTTP client can use without knowing much.

POST /message/new                add a message
GET  /message/next               take the next one
POST /message/ID/status/done     say that it is done
GET  /info                       look at the queue

Every answer has status 200, because the clients of these routes look at nothing but the body: what went wrong is in
its ``err``. Paths may be written in any case and may end with a slash.
"""

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from onebus.errors import BusError, InvalidArgument, LeaseLost
from onebus.web.answers import Answer, json
from onebus.web.queues.info import InfoPage
from onebus.web.queues.reading import content, number
from onebus.web.queues.settings import QueueSettings
from onebus.web.queues.shelf import QueueShelf
from onebus.web.queues.shown import Shown
from onebus.web.request import Request

MAX_REMEMBERED: Final = 10_000
MAX_REMEMBERED_BYTES: Final = 16 * 1024 * 1024

MAX_ID_DIGITS: Final = 15

DONE_SLASHES: Final = 4
"""How many there are in ``/message/ID/status/done``."""
_DONE_PATH: Final = "/message/ID/status/done"
_INFO_PATH: Final = "/info"
FORM: Final = b"application/x-www-form-urlencoded"


_Route = Callable[[Request], Coroutine[Any, Any, Answer]]


class Added(msgspec.Struct):
    id: int


class Trouble(msgspec.Struct):
    code: str
    message: str


class Failed(msgspec.Struct):
    err: Trouble


class _New(msgspec.Struct):
    payload: Any = None


_new_decoder = msgspec.json.Decoder(_New)


class SingleQueue:
    """Answers the routes of one queue."""

    def __init__(self, shelf: QueueShelf, settings: QueueSettings) -> None:
        self._shelf = shelf
        self._name = settings.queue
        self._max_body_bytes = settings.max_body_bytes
        self._handed = _Handed()
        info = InfoPage(shelf, settings.queue)
        self._routes: Mapping[str, tuple[str, _Route]] = {
            "/message/new": ("POST", self._add),
            "/message/next": ("GET", self._next),
            _DONE_PATH: ("POST", self._done),
            _INFO_PATH: ("GET", info.answer),
        }

    @staticmethod
    def owns(path: str) -> bool:
        path = path.lower()
        return path.startswith("/message/") or path.rstrip("/") == _INFO_PATH

    def serve(self, request: Request) -> Coroutine[Any, Any, Answer]:
        path = request.path.lower().rstrip("/")
        if path.endswith("/status/done") and path.count("/") == DONE_SLASHES:
            path = _DONE_PATH
        if path not in self._routes:
            return _at_once(_failed("not_found", f"There is nothing at {request.path}.", status=404))
        method, route = self._routes[path]
        if request.method != method and not (request.method == "HEAD" and path == _INFO_PATH):
            return _at_once(_refused(request, method))
        return route(request)

    @staticmethod
    def answer_to(problem: BusError) -> Answer:
        """Return what to answer to a request that failed."""
        return _failed(problem.code, str(problem))

    async def _add(self, request: Request) -> Answer:
        body = await request.body(max_bytes=self._max_body_bytes)
        payload = _text_of(_payload(request, body))
        queue = self._shelf.find(self._name) or await self._shelf.get(self._name)
        return json(Added(await queue.push(payload)))

    async def _next(self, request: Request) -> Answer:
        queue = self._shelf.find(self._name) or await self._shelf.get(self._name)
        held = await queue.next(lease_seconds=number(request, "timeout"))
        if not held:
            return _failed("queue_empty", "No message is waiting.")
        shown = Shown.pending(held[0].message)
        self._handed.remember(shown)
        return json(shown)

    async def _done(self, request: Request) -> Answer:
        id_ = _id(request.path.split("/")[2])
        queue = self._shelf.find(self._name) or await self._shelf.get(self._name)
        shown = self._handed.get(id_)
        if shown is None and (message := await queue.read(id_)) is not None:
            shown = Shown.pending(message)
        try:
            await queue.done(id_)
        except LeaseLost:
            shown = None
        self._handed.forget(id_)
        if shown is None:
            text = f"Message {id_} is not pending: it was not handed out, is done already, or its time was up."
            return _failed("not_pending", text)
        shown.status = "processed"
        return json(shown)


class _Handed:
    """The messages that were handed out last, so that nobody has to read them again when they are done."""

    def __init__(self) -> None:
        self._shown: OrderedDict[int, Shown] = OrderedDict()
        self._bytes = 0

    def remember(self, shown: Shown) -> None:
        self.forget(shown.id)
        self._shown[shown.id] = shown
        self._bytes += len(shown.payload)
        while len(self._shown) > MAX_REMEMBERED or self._bytes > MAX_REMEMBERED_BYTES:
            _, oldest = self._shown.popitem(last=False)
            self._bytes -= len(oldest.payload)

    def get(self, id_: int) -> Shown | None:
        return self._shown.get(id_)

    def forget(self, id_: int) -> None:
        if (shown := self._shown.pop(id_, None)) is not None:
            self._bytes -= len(shown.payload)


def _payload(request: Request, body: bytes) -> Any:
    if _is_form(request):
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)).get("payload")
    return content(_new_decoder, body).payload


def _is_form(request: Request) -> bool:
    return request.raw_headers.get(b"content-type", b"").startswith(FORM)


def _text_of(payload: Any) -> str:
    """Return a payload as the text that is kept: of other kinds than text, only those that have one."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, bool):
        return "1" if payload else "0"
    if isinstance(payload, float) and payload.is_integer():
        return str(int(payload))
    if isinstance(payload, int | float):
        return str(payload)
    if payload is None:
        raise InvalidArgument('The payload is missing. Send {"payload": "text"} as JSON, or payload=text as a form.')
    raise InvalidArgument("The payload cannot be an array or an object. Send it as text.")


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_ID_DIGITS:
        raise InvalidArgument(f"{text[:40]!r} is not the id of a message.")
    return int(text)


async def _at_once(answer: Answer) -> Answer:
    return answer


def _refused(request: Request, method: str) -> Answer:
    if request.method == "HEAD" and method == "GET":
        # To look must not take anything.
        return json({})
    trouble = Failed(Trouble("method_not_allowed", f"{request.path} wants {method}."))
    return json(trouble, status=405, headers={"allow": method})


def _failed(code: str, text: str, *, status: int = 200) -> Answer:
    return json(Failed(Trouble(code, text)), status=status)
