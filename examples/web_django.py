"""A Django application whose users hear at once what concerns them.

python examples/web_django.py                          then, in two terminals:
    curl -N -b name=ann -d /orders=0 http://127.0.0.1:8000/message-bus/terminal-1/poll
    curl -b name=ann -d item=book http://127.0.0.1:8000/order
python examples/web_django.py sqlite:///bus.db 8001    in a file, on another port
"""

import secrets
import sys

import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from onebus import Bus
from onebus.web import FeedSettings, Middleware, Request

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY=secrets.token_hex())

bus = Bus(sys.argv[1] if len(sys.argv) > 1 else "memory://")


async def order(request: HttpRequest) -> JsonResponse:
    item, name = request.POST["item"], request.COOKIES["name"]
    return JsonResponse({"id": await bus.publish("/orders", f"{item} is on its way", user_ids=[name])})


def user_of(request: Request) -> str | None:
    """Say who follows channels. A real application would look at its session."""
    cookies = request.headers.get("cookie", "").split("; ")
    return next((cookie.removeprefix("name=") for cookie in cookies if cookie.startswith("name=")), None)


urlpatterns = [path("order", order)]
app = Middleware(get_asgi_application(), bus, FeedSettings(user_id_lookup=user_of))

if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    # Clients that wait for news are let go when the server stops.
    uvicorn.run(app, port=port, timeout_graceful_shutdown=1)
