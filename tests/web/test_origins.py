"""Pages of other origins."""

import pytest

from tests.web.conftest import OpenDoor
from tests.web.server import FeedServer

FRIEND = {"Origin": "https://friend.org"}


def cors(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control") or name == "vary"}


@pytest.fixture
async def web(open_door: OpenDoor) -> FeedServer:
    return await open_door(origins=["https://friend.org/", "https://Other.org"])


async def test_a_page_of_an_allowed_origin_may_read_the_answer(web: FeedServer) -> None:
    response = await web.get("/message-bus/abc/poll?dlp=t", headers=FRIEND)

    assert cors(response.headers) == {
        "access-control-allow-origin": "https://friend.org",
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": "retry-after",
        "vary": "origin",
    }


async def test_a_browser_is_told_once_for_hours_what_such_a_page_may_send(web: FeedServer) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "dont-chunk,x-mine"}

    response = await web.request("OPTIONS", "/message-bus/abc/poll", headers={**FRIEND, **asked})

    assert (
        cors(response.headers).items()
        >= {
            "access-control-allow-origin": "https://friend.org",
            "access-control-allow-methods": "GET, POST, OPTIONS",
            "access-control-allow-headers": "dont-chunk,x-mine",
            "access-control-max-age": "7200",
        }.items()
    )


@pytest.mark.parametrize("origin", ["https://elsewhere.org", "null", "https://friend.org.elsewhere.org"])
async def test_a_page_of_another_origin_may_not_read_the_answer(web: FeedServer, origin: str) -> None:
    response = await web.get("/message-bus/abc/poll?dlp=t", headers={"Origin": origin})

    assert cors(response.headers) == {"vary": "origin"}


async def test_errors_can_be_read_too(web: FeedServer) -> None:
    response = await web.request(
        "POST", "/message-bus/abc/poll", body=b"{", headers={**FRIEND, "Content-Type": "application/json"}
    )

    assert response.status == 400
    assert response.headers["access-control-allow-origin"] == "https://friend.org"


async def test_nothing_is_said_of_origins_where_none_is_allowed(open_door: OpenDoor) -> None:
    web = await open_door()

    assert cors((await web.get("/message-bus/abc/poll?dlp=t", headers=FRIEND)).headers) == {}


async def test_a_star_allows_every_origin(open_door: OpenDoor) -> None:
    web = await open_door(origins=["*"])

    response = await web.get("/message-bus/abc/poll?dlp=t", headers=FRIEND)

    assert response.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in response.headers
