"""The routes of queues by their names, with status codes that say what happened.

POST     /queues/NAME/messages                add one message, or several
GET|POST /queues/NAME/messages/next           take messages, and wait for them
POST     /queues/NAME/messages/ID/done        say that one is done
POST     /queues/NAME/messages/ID/release     give it back
POST     /queues/NAME/messages/ID/extend      hold it for longer
POST     /queues/NAME/messages/done           say that several are done
GET      /queues                              all queues
GET      /queues/NAME                         what is in one
GET      /queues/NAME/dead                    what could not be handled
POST     /queues/NAME/dead/redrive            push that once more
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from onebus.bus import Bus
from onebus.errors import InvalidArgument, LeaseLost
from onebus.objects.dispenser import MAX_HANDED_AT_ONCE
from onebus.objects.queues import QueueState
from onebus.objects.workqueue import WorkQueue
from onebus.web.answers import Answer, error, json, nothing
from onebus.web.queues import shapes
from onebus.web.queues.reading import content, number, taken_by, whole_number
from onebus.web.queues.settings import QueueSettings
from onebus.web.queues.shelf import QueueShelf
from onebus.web.request import Request

MAX_LETTERS_LISTED: Final = 1000
MAX_ID_DIGITS: Final = 15

_push_decoder = msgspec.json.Decoder(shapes.NewMessage | shapes.NewMessages)
_finish_decoder = msgspec.json.Decoder(shapes.Finish)
_finish_many_decoder = msgspec.json.Decoder(shapes.FinishMany)
_release_decoder = msgspec.json.Decoder(shapes.Release)
_extend_decoder = msgspec.json.Decoder(shapes.Extend)
_redrive_decoder = msgspec.json.Decoder(shapes.Redrive)


class Call:
    """A request that concerns one queue, and maybe one of its messages."""

    __slots__ = ("message", "name", "request")

    def __init__(self, request: Request, name: str = "", message: str = "") -> None:
        self.request = request
        self.name = name
        self.message = message

    @property
    def message_id(self) -> int:
        text = self.message
        if not (text.isascii() and text.isdigit()) or len(text) > MAX_ID_DIGITS:
            raise InvalidArgument(f"{text[:40]!r} is not the id of a message.")
        return int(text)


_Route = Callable[[Call], Awaitable[Answer]]
_Methods = Mapping[str, _Route]


class NamedQueues:
    """Answers what is below ``/queues``."""

    def __init__(self, bus: Bus, shelf: QueueShelf, settings: QueueSettings) -> None:
        self._bus = bus
        self._shelf = shelf
        self._max_wait = settings.max_wait
        self._max_body_bytes = settings.max_body_bytes
        self._of_all: _Methods = {"GET": self._list}
        self._of_queue: Mapping[str, _Methods] = {
            "": {"GET": self._state},
            "messages": {"POST": self._push},
            "messages/next": {"GET": self._next, "POST": self._next},
            "messages/done": {"POST": self._finish_many},
            "dead": {"GET": self._letters},
            "dead/redrive": {"POST": self._redrive},
        }
        self._of_message: Mapping[str, _Methods] = {
            "done": {"POST": self._finish},
            "release": {"POST": self._release},
            "extend": {"POST": self._extend},
        }

    @staticmethod
    def owns(path: str) -> bool:
        return path == "/queues" or path.startswith("/queues/")

    async def serve(self, request: Request) -> Answer:
        _, _, *parts = request.path.split("/")
        call = Call(request, *parts[:1])
        methods = self._methods(call, parts)
        if methods is None:
            return error(404, "not_found", f"There is nothing at {request.path}.")
        route = methods.get(request.method)
        if route is None:
            text = f"{request.path} does not answer to {request.method}."
            return error(405, "method_not_allowed", text, headers={"allow": ", ".join(methods)})
        return await route(call)

    def _methods(self, call: Call, parts: Sequence[str]) -> _Methods | None:
        """Return what answers a path, by method."""
        if parts in ([], [""]):
            return self._of_all
        rest = parts[1:]
        if len(rest) == 3 and rest[0] == "messages":
            call.message = rest[1]
            return self._of_message.get(rest[2])
        return self._of_queue.get("/".join(rest)) if parts[0] else None

    async def _queue(self, call: Call) -> WorkQueue:
        return await self._shelf.get(call.name)

    async def _body(self, call: Call) -> bytes:
        return await call.request.body(max_bytes=self._max_body_bytes)

    # Pushing

    async def _push(self, call: Call) -> Answer:
        wanted = content(_push_decoder, await self._body(call))
        queue = await self._queue(call)
        ids = (
            [await _push_one(queue, wanted)]
            if isinstance(wanted, shapes.NewMessage)
            else await _push_many(queue, wanted)
        )
        return json(shapes.Pushed(ids), status=201)

    # Handing out

    async def _next(self, call: Call) -> Answer:
        request = call.request
        limit = whole_number(request, "limit", 1, least=1, most=MAX_HANDED_AT_ONCE)
        timeout, wait = number(request, "timeout"), number(request, "wait") or 0.0
        if not 0 <= wait <= self._max_wait:
            raise InvalidArgument(f"wait must be from 0 to {self._max_wait:g} seconds, but is {wait:g}.")
        queue = await self._queue(call)
        taking = queue.next(limit, lease_seconds=timeout, wait_seconds=wait)
        held = await (taken_by(request, queue, taking) if wait else taking)
        return json(shapes.Handed([shapes.HandedMessage.of(one) for one in held]))

    async def _finish(self, call: Call) -> Answer:
        message_id = call.message_id
        wanted = content(_finish_decoder, await self._body(call))
        queue = await self._queue(call)
        await queue.done(message_id, int(wanted.lease))
        return nothing()

    async def _finish_many(self, call: Call) -> Answer:
        wanted = content(_finish_many_decoder, await self._body(call))
        queue = await self._queue(call)
        outcomes = await asyncio.gather(
            *(queue.done(one.id, int(one.lease)) for one in wanted.messages), return_exceptions=True
        )
        answer = shapes.FinishedMany([], [])
        for one, outcome in zip(wanted.messages, outcomes, strict=True):
            if isinstance(outcome, LeaseLost):
                answer.lost.append(one.id)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                answer.done.append(one.id)
        return json(answer)

    async def _release(self, call: Call) -> Answer:
        message_id = call.message_id
        wanted = content(_release_decoder, await self._body(call))
        queue = await self._queue(call)
        await queue.release(message_id, int(wanted.lease), delay_seconds=wanted.delay)
        return nothing()

    async def _extend(self, call: Call) -> Answer:
        message_id = call.message_id
        wanted = content(_extend_decoder, await self._body(call))
        queue = await self._queue(call)
        await queue.extend(message_id, int(wanted.lease), lease_seconds=wanted.timeout)
        return nothing()

    # Looking

    async def _list(self, call: Call) -> Answer:
        prefix = call.request.parameters.get("prefix", "")
        states = await self._bus.queues(prefix)
        return json(shapes.States([_shown(state) for state in states]))

    async def _state(self, call: Call) -> Answer:
        queue = await self._queue(call)
        state = await queue.state()
        if state.ttl is None and not state.dead and not state.delayed:
            return error(404, "no_such_queue", f"There is no queue {call.name!r}.")
        return json(_shown(state))

    async def _letters(self, call: Call) -> Answer:
        limit = whole_number(call.request, "limit", 100, least=1, most=MAX_LETTERS_LISTED)
        queue = await self._queue(call)
        letters = await queue.dead.list(limit)
        return json(shapes.Letters([shapes.Letter.of(letter) for letter in letters]))

    async def _redrive(self, call: Call) -> Answer:
        body = await self._body(call)
        wanted = content(_redrive_decoder, body) if body else shapes.Redrive()
        queue = await self._queue(call)
        return json(shapes.Redriven(await queue.dead.redrive(wanted.limit)))


async def _push_one(queue: WorkQueue, new: shapes.NewMessage) -> int | None:
    stored = await queue.push(new.data, key=new.key_bytes, headers=new.checked_headers, delay_seconds=new.delay)
    return stored or None


async def _push_many(queue: WorkQueue, messages: Sequence[shapes.NewMessage]) -> list[int | None]:
    if any(new.delay for new in messages):
        return await asyncio.gather(*(_push_one(queue, new) for new in messages))
    return list(await queue.push_many([new.entry() for new in messages]))


def _shown(state: QueueState) -> shapes.State:
    return shapes.State(state.name, state.waiting, state.held, state.dead, state.delayed)
