"""A part of the web application that answers what comes in below some paths."""

from typing import Protocol

from onebus.web.asgi import Send
from onebus.web.request import Request


class Door(Protocol):
    """Answers the requests that it owns."""

    def owns(self, path: str) -> bool:
        """Return whether a path is this door's to answer."""

    async def serve(self, request: Request, send: Send) -> None:
        """Answer one request. What it raises before it has sent anything becomes an error answer."""

    async def close(self) -> None:
        """Answer whoever still waits, because the server is about to stop."""
