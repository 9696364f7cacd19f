"""What is in a queue: a page for people, JSON for programs."""

from html import escape
from importlib.resources import files
from string import Template
from typing import Final

import msgspec

from onebus.web.answers import Answer, json, page
from onebus.web.queues.reading import whole_number
from onebus.web.queues.shelf import QueueShelf
from onebus.web.queues.shown import Shown
from onebus.web.request import Request

MESSAGES_PER_PAGE: Final = 100
MAX_MESSAGES_PER_PAGE: Final = 1000
MAX_SHOWN_CHARACTERS: Final = 10_000
"""Of a longer payload, the page shows the beginning."""


class Info(msgspec.Struct, kw_only=True):
    """What a queue holds, and some of its messages."""

    queue: str
    unprocessed: int
    pending: int
    processed: int
    dead: int
    delayed: int
    messages: list[Shown]
    next: int | None
    """What to ask for with ``after=`` to see the messages that follow; None if there are no more."""


class InfoPage:
    """Shows one queue, page by page. What is done is counted, and not shown: it is gone."""

    def __init__(self, shelf: QueueShelf, name: str) -> None:
        self._shelf = shelf
        self._name = name
        self._page = Template(files("onebus.web").joinpath("pages", "queue.html").read_text("utf-8"))

    async def answer(self, request: Request) -> Answer:
        after = whole_number(request, "after", 0, least=0, most=1 << 53)
        limit = whole_number(request, "limit", MESSAGES_PER_PAGE, least=1, most=MAX_MESSAGES_PER_PAGE)
        info = await self._look(after, limit)
        accepted = request.headers.get("accept", "")
        if "application/json" in accepted and "text/html" not in accepted:
            return json(info)
        return page(self._html(info, limit))

    async def _look(self, after: int, limit: int) -> Info:
        queue = await self._shelf.get(self._name)
        state, last_id = await queue.state(), await queue.last_id()
        listed = await queue.list(after, limit + 1)
        shown = [Shown.of(one.message, "pending" if one.is_held else "unprocessed") for one in listed[:limit]]
        return Info(
            queue=self._name,
            unprocessed=state.waiting,
            pending=state.held,
            processed=max(last_id - state.waiting - state.held, 0),
            dead=state.dead,
            delayed=state.delayed,
            messages=shown,
            next=shown[-1].id if len(listed) > limit else None,
        )

    def _html(self, info: Info, limit: int) -> str:
        more = "" if info.next is None else f'<a href="?after={info.next}&amp;limit={limit}">More</a>'
        return self._page.substitute(
            name=escape(info.queue),
            unprocessed=info.unprocessed,
            pending=info.pending,
            processed=info.processed,
            dead=info.dead,
            delayed=info.delayed,
            messages="".join(map(_message, info.messages)),
            more=more,
        )


def _message(shown: Shown) -> str:
    payload = shown.payload[:MAX_SHOWN_CHARACTERS]
    return (
        f"<h3>Message Id: {shown.id}</h3>"
        f'<div>Payload: <span class="payload">{escape(payload)}</span><br>Status: {shown.status}</div>'
    )
