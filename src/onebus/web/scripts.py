"""The client for browsers, as files that they can load."""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from onebus.web.answers import Answer, error
from onebus.web.asgi import Send
from onebus.web.door import Door
from onebus.web.request import Request

_READING = ("GET", "HEAD")


class ScriptDoor(Door):
    """Serves ``onebus.js`` and the modules that it is made of."""

    def __init__(self, base_route: str = "/") -> None:
        folder = files("onebus.web").joinpath("pages", "js")
        self._scripts = {base_route + name: _script(file.read_bytes()) for name, file in _modules(folder)}

    def owns(self, path: str) -> bool:
        return path in self._scripts

    async def serve(self, request: Request, send: Send) -> Answer:
        answer = self._scripts[request.path]
        if request.method not in _READING:
            headers = {"allow": ", ".join(_READING)}
            answer = error(405, "method_not_allowed", f"{request.path} can only be read.", headers=headers)
        elif request.headers.get("if-none-match", "") == answer.headers["etag"]:
            answer = Answer(304, "", b"", answer.headers)
        return answer


def _modules(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    yield "onebus.js", folder.joinpath("onebus.js")
    for file in folder.joinpath("onebus").iterdir():
        yield f"onebus/{file.name}", file


def _script(text: bytes) -> Answer:
    # Pages of other origins may load it, as they may load any script.
    headers = {
        "etag": f'"{hashlib.sha256(text).hexdigest()[:32]}"',
        "cache-control": "no-cache",
        "access-control-allow-origin": "*",
    }
    return Answer(200, "text/javascript; charset=utf-8", text, headers)
