"""A Starlette application whose pages hear at once what is said. FastAPI is used in the same way.

python examples/web_starlette.py                          open http://127.0.0.1:8000 in two tabs
python examples/web_starlette.py sqlite:///bus.db 8001    in a file, on another port
"""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from onebus import Bus
from onebus.web import FeedSettings, Middleware, Visitor

bus = Bus(sys.argv[1] if len(sys.argv) > 1 else "memory://")

PAGE = """<!doctype html>
<title>Chat</title>
<form><input name="text" autofocus><button>Say</button></form>
<ul></ul>
<script>
  const events = new EventSource(`/message-bus/${Math.random()}/sse?/chat=-11`);
  events.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.channel !== "/chat") return;
    const item = document.createElement("li");
    item.textContent = message.data.text;
    document.querySelector("ul").prepend(item);
  };
  document.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    fetch("/say", { method: "POST", body: JSON.stringify({ text: event.target.text.value }) });
    event.target.reset();
  };
</script>
"""


async def home(request: Request) -> Response:
    return HTMLResponse(PAGE)


async def say(request: Request) -> Response:
    said = await request.json()
    return JSONResponse({"id": await bus.publish("/chat", {"text": str(said["text"])})})


def may_subscribe(visitor: Visitor, channel: str) -> bool:
    return channel == "/chat"


app = Starlette(routes=[Route("/", home), Route("/say", say, methods=["POST"])])
app.add_middleware(Middleware, bus=bus, settings=FeedSettings(may_subscribe=may_subscribe))

if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    # Pages that wait for news are let go when the server stops.
    uvicorn.run(app, port=port, timeout_graceful_shutdown=1)
