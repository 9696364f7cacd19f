"""A part of the web application that answers what comes in below some paths."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from onebus.errors import BusError
from onebus.web.answers import Answer, failure
from onebus.web.asgi import Message, Send
from onebus.web.lane import lane_of
from onebus.web.request import ClientGone, Request

CLOSING_SECONDS: Final = 5.0

_log = logging.getLogger("onebus")


class Sending:
    """Hands an answer to the web server, and knows whether it has begun to."""

    __slots__ = ("_send", "has_begun")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    def __call__(self, message: Message) -> Awaitable[None]:
        self.has_begun = True
        return self._send(message)


class Door(ABC):
    """Answers the requests that it owns."""

    @abstractmethod
    def owns(self, path: str) -> bool:
        """Return whether a path is this door's to answer."""

    @abstractmethod
    async def serve(self, request: Request, send: Send) -> Answer | None:
        """Return what to answer to a request, or None when it was answered through ``send``.

        What it raises before it has sent anything is answered with `answer_to`.
        """

    async def answer_to(self, request: Request, problem: Exception) -> Answer:
        """Return what to answer to a request that failed; what is nobody's fault but the program's is raised again."""
        if isinstance(problem, BusError):
            return failure(problem)
        raise problem

    async def close(self) -> None:
        """Answer whoever still waits, because the server is about to stop."""

    async def enter(self, request: Request, send: Send) -> None:
        """Serve a request, and answer whatever goes wrong with it."""
        sending = Sending(send)
        try:
            answer = await self.serve(request, sending)
        except ClientGone:
            return
        except Exception as problem:
            _log.debug("%s %s failed: %s", request.method, request.path, problem)
            if not sending.has_begun:
                answer = await self.answer_to(request, problem)
            elif isinstance(problem, BusError) and request.scope["type"] == "websocket":
                await _close(problem, send)
                return
            else:
                raise
        if answer is not None:
            await answer_with(answer, request, send)


async def answer_with(answer: Answer, request: Request, send: Send) -> None:
    """Answer a request; a websocket is refused with it, or with 403 if the web server can do nothing else."""
    lane = lane_of(request.scope)
    if lane is not None:
        answer.give(lane)
    elif request.scope["type"] == "http":
        await answer.send(send, with_body=request.method != "HEAD")
    elif "websocket.http.response" in request.scope.get("extensions", {}):
        await answer.send(send, kind="websocket.http.response")
    else:
        await send({"type": "websocket.close", "code": 1008})


async def _close(problem: BusError, send: Send) -> None:
    # Whoever does not read does not let itself be told either.
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING_SECONDS):
            await send({"type": "websocket.close", "code": 1008, "reason": f"{problem.code}: {problem}"[:120]})
