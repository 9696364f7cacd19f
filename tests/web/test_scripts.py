from collections.abc import AsyncIterator

import pytest

from onebus import Bus
from tests.web.server import WebServer, serving


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with serving(Bus("memory://")) as server:
        yield server


async def test_the_client_for_browsers_and_its_modules_are_served(web: WebServer) -> None:
    client = await web.get("/onebus.js")
    module = await web.get("/onebus/wire.js")

    assert (client.status, module.status) == (200, 200)
    assert client.headers["content-type"] == "text/javascript; charset=utf-8"
    assert client.headers["cache-control"] == "no-cache"
    assert b"export class MessageBus" in client.body
    assert b"export class Wire" in module.body


async def test_a_browser_that_has_the_client_already_does_not_get_it_again(web: WebServer) -> None:
    etag = (await web.get("/onebus.js")).headers["etag"]

    same = await web.request("GET", "/onebus.js", headers={"if-none-match": etag})
    other = await web.request("GET", "/onebus.js", headers={"if-none-match": '"old"'})

    assert (same.status, same.body) == (304, b"")
    assert other.status == 200


async def test_the_client_can_only_be_read(web: WebServer) -> None:
    response = await web.request("POST", "/onebus.js")

    assert response.status == 405
    assert response.headers["allow"] == "GET, HEAD"


async def test_nothing_else_of_the_package_is_served(web: WebServer) -> None:
    for path in ("/package.json", "/onebus/package.json", "/onebus/../package.json", "/onebus/", "/onebus/nothing.js"):
        assert (await web.get(path)).status == 404
