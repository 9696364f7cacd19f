from typing import Any

import pytest

from onebus import Bus, __version__
from onebus.web import app
from onebus.web.asgi import Message
from tests.conftest import running
from tests.eventually import eventually
from tests.services import PostgresServer
from tests.services.port import free_port
from tests.web.exchange import Response
from tests.web.server import WebServer, serving


async def test_health_is_good_while_the_store_answers(bus: Bus, web: WebServer) -> None:
    response = await web.get("/healthz")

    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json == {
        "status": "ok",
        "online": True,
        "store": bus.url,
        "product": "memory",
        "version": __version__,
        "reason": "",
    }


@pytest.mark.xdist_group("postgres")
async def test_health_is_bad_while_the_store_is_away_and_good_again_afterwards() -> None:
    with running(PostgresServer(password="correct-horse")) as server:
        async with serving(Bus(server.url)) as web:

            async def health(status: int) -> Response | None:
                response = await web.get("/healthz")
                return response if response.status == status else None

            server.kill()
            away = await eventually(lambda: health(503))
            server.start()
            back = await eventually(lambda: health(200))

    assert away is not None
    assert back is not None
    assert away.json["status"] == "unavailable"
    assert away.json["online"] is False
    assert away.json["product"].startswith("PostgreSQL")
    assert away.json["reason"]
    assert back.json["status"] == "ok"
    assert b"correct-horse" not in away.body + back.body


async def test_the_front_page_says_what_this_is(web: WebServer) -> None:
    response = await web.get("/")

    assert response.status == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert b"<h1>onebus</h1>" in response.body


async def test_a_head_request_gets_everything_but_the_body(web: WebServer) -> None:
    whole = await web.get("/")

    response = await web.request("HEAD", "/")

    assert (response.status, response.body) == (200, b"")
    assert response.headers["content-length"] == str(len(whole.body))


async def test_other_paths_are_not_found(web: WebServer) -> None:
    response = await web.get("/nowhere")

    assert response.status == 404
    assert response.json == {"error": {"code": "not_found", "text": "There is nothing at /nowhere."}}


async def test_pages_cannot_be_written(web: WebServer) -> None:
    response = await web.request("POST", "/healthz")

    assert response.status == 405
    assert response.headers["allow"] == "GET, HEAD"


async def test_the_bus_is_connected_as_long_as_the_server_runs() -> None:
    bus = Bus("memory://")

    async with serving(bus):
        online_while_serving = bus.is_online

    assert online_while_serving
    assert not bus.is_connected


async def test_a_bus_that_was_connected_before_stays_so() -> None:
    async with Bus("memory://") as bus:
        async with serving(bus) as web:
            assert (await web.get("/healthz")).status == 200

        assert bus.is_online


async def test_a_store_that_cannot_be_opened_fails_the_start_with_its_reason() -> None:
    sent: list[Message] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    application = app(Bus(f"postgresql://127.0.0.1:{free_port()}/onebus"))
    await application({"type": "lifespan"}, receive, send)

    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert sent[0]["message"].startswith("error[store_unavailable]: ")
