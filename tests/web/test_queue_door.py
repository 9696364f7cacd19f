import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from onebus import Bus
from onebus.errors import InvalidArgument
from onebus.web import app
from onebus.web.queues.settings import TIMEOUT_VARIABLE, QueueSettings
from tests.clock import FakeClock
from tests.eventually import eventually
from tests.web.server import serving

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def bus(clock: FakeClock) -> AsyncIterator[Bus]:
    """A bus in memory whose time is that of the test, for the leases to end when it says so."""
    async with Bus(f"memory://{uuid4().hex}", clock=clock) as bus:
        yield bus


@asynccontextmanager
async def visiting(bus: Bus, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(bus, queues=QueueSettings(**settings)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as client,
    ):
        yield client


@pytest.fixture
async def client(bus: Bus) -> AsyncIterator[httpx.AsyncClient]:
    async with visiting(bus, pending_timeout=10) as client:
        yield client


async def say(client: httpx.AsyncClient, payload: Any) -> Any:
    answer = await client.post("/message/new", json={"payload": payload})
    assert answer.status_code == 200
    return answer.json()


async def error_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200
    (only,) = answer.json()
    assert only == "err"
    code: str = answer.json()["err"]["code"]
    assert answer.json()["err"]["message"]
    return code


# One queue without a name


async def test_a_message_goes_from_new_to_next_to_done(client: httpx.AsyncClient) -> None:
    assert await say(client, "first") == {"id": 1}

    taken = (await client.get("/message/next")).json()
    done = (await client.post("/message/1/status/done")).json()

    assert list(taken) == ["id", "payload", "status", "createdAt", "updatedAt"]
    assert (taken["id"], taken["payload"], taken["status"]) == (1, "first", "pending")
    assert done == {**taken, "status": "processed"}
    assert taken["createdAt"].endswith("Z")


async def test_an_empty_queue_is_an_err_with_status_200(client: httpx.AsyncClient) -> None:
    assert await error_of(await client.get("/message/next")) == "queue_empty"


@pytest.mark.parametrize(
    ("payload", "text"),
    [("", ""), ("ü\n", "ü\n"), (12.5, "12.5"), (0, "0"), (3.0, "3"), (True, "1"), (False, "0")],
)
async def test_payloads_that_have_a_text_are_kept_as_text(client: httpx.AsyncClient, payload: Any, text: str) -> None:
    await say(client, payload)

    assert (await client.get("/message/next")).json()["payload"] == text


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        '{"payload": null}',
        '{"payload": [1]}',
        '{"payload": {}}',
        "[1]",
        "1",
        '{"payload"',
        "payload=x",
        "\xff",
    ],
)
async def test_what_has_no_payload_is_an_err(client: httpx.AsyncClient, body: str) -> None:
    answer = await client.post("/message/new", content=body.encode("latin-1"))

    assert await error_of(answer) == "invalid_argument"


async def test_a_form_is_as_good_as_json(client: httpx.AsyncClient) -> None:
    assert (await client.post("/message/new", data={"payload": "a form & more"})).json() == {"id": 1}
    assert await error_of(await client.post("/message/new", content="other=1", headers=FORM)) == "invalid_argument"

    assert (await client.get("/message/next")).json()["payload"] == "a form & more"


async def test_a_body_that_is_too_long_is_an_err(bus: Bus) -> None:
    async with visiting(bus, max_body_bytes=1000) as client:
        assert await error_of(await client.post("/message/new", json={"payload": "x" * 1000})) == "payload_too_large"


@pytest.mark.parametrize("message_id", ["1", "2", "0", "7", "x", "2x", "-1", "9" * 40])
async def test_done_on_what_is_not_pending_is_an_err(client: httpx.AsyncClient, message_id: str) -> None:
    await say(client, "done already")
    await say(client, "waits")
    await client.get("/message/next")
    await client.post("/message/1/status/done")

    code = await error_of(await client.post(f"/message/{message_id}/status/done"))

    assert code in ("not_pending", "invalid_argument")


async def test_a_message_that_timed_out_is_at_the_front_and_cannot_be_finished(
    client: httpx.AsyncClient, clock: FakeClock
) -> None:
    for number in range(3):
        await say(client, number)
    await client.get("/message/next")
    await client.get("/message/next")
    clock.advance(11)

    assert await error_of(await client.post("/message/1/status/done")) == "not_pending"
    assert [(await client.get("/message/next")).json()["id"] for _ in range(3)] == [1, 2, 3]


async def test_a_request_may_ask_for_more_time(client: httpx.AsyncClient, clock: FakeClock) -> None:
    await say(client, "slow")
    await client.get("/message/next?timeout=100")
    clock.advance(50)

    assert (await client.post("/message/1/status/done")).json()["status"] == "processed"
    assert await error_of(await client.get("/message/next?timeout=soon")) == "invalid_argument"
    assert await error_of(await client.get("/message/next?timeout=-1")) == "invalid_argument"


async def test_the_time_out_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "2.5")
    assert QueueSettings().pending_timeout == 2.5
    assert QueueSettings(pending_timeout=3).pending_timeout == 3

    monkeypatch.setenv(TIMEOUT_VARIABLE, "soon")
    with pytest.raises(InvalidArgument):
        QueueSettings()


async def test_another_process_finishes_what_this_one_handed_out(bus: Bus) -> None:
    async with Bus(bus.url) as other, visiting(bus) as client, visiting(other) as other_client:
        await say(client, "shared")
        await client.get("/message/next")

        done = (await other_client.post("/message/1/status/done")).json()

        assert (done["payload"], done["status"]) == ("shared", "processed")


async def test_paths_may_be_written_in_any_case_and_end_with_a_slash(client: httpx.AsyncClient) -> None:
    assert (await client.post("/Message/NEW/", json={"payload": "a"})).json() == {"id": 1}
    assert (await client.get("/MESSAGE/next/")).json()["id"] == 1
    assert (await client.post("/message/1/Status/Done/")).json()["status"] == "processed"


async def test_to_look_takes_nothing(client: httpx.AsyncClient) -> None:
    await say(client, "a")

    assert (await client.head("/message/next")).status_code == 200
    wrong = await client.get("/message/new")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (await client.get("/message/other")).status_code == 404

    assert (await client.get("/message/next")).json()["id"] == 1


async def test_after_so_many_attempts_a_message_is_never_handed_out_again(bus: Bus, clock: FakeClock) -> None:
    async with visiting(bus, max_attempts=2, pending_timeout=10, queue="jobs") as client:
        await say(client, "poison")
        for _ in range(2):
            assert (await client.get("/message/next")).json()["id"] == 1
            clock.advance(11)

        assert await error_of(await client.get("/message/next")) == "queue_empty"

        (letter,) = (await client.get("/queues/jobs/dead")).json()["letters"]
        assert (letter["data"], letter["attempts"]) == ("poison", 2)


# Looking at it


async def test_the_page_shows_what_is_in_the_queue_and_escapes_it(client: httpx.AsyncClient) -> None:
    await say(client, "<script>alert(1)</script>")

    answer = await client.get("/info", headers={"accept": "text/html,application/json;q=0.9,*/*"})

    assert answer.headers["content-type"].startswith("text/html")
    assert "<h1>Queue Info:</h1>" in answer.text
    assert "Message Id: 1" in answer.text
    assert "&lt;script&gt;alert(1)" in answer.text
    assert "<script>" not in answer.text


async def test_the_same_as_json_page_by_page(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await say(client, number)
    await client.get("/message/next")
    await client.get("/message/next")
    await client.post("/message/2/status/done")
    headers = {"accept": "application/json"}

    first = (await client.get("/info?limit=2", headers=headers)).json()
    rest = (await client.get(f"/info?after={first['next']}", headers=headers)).json()

    assert {name: first[name] for name in ("queue", "unprocessed", "pending", "processed", "dead")} == {
        "queue": "messages",
        "unprocessed": 3,
        "pending": 1,
        "processed": 1,
        "dead": 0,
    }
    shown = [(one["id"], one["payload"], one["status"]) for one in first["messages"] + rest["messages"]]
    assert shown == [
        (1, "0", "pending"),
        (3, "2", "unprocessed"),
        (4, "3", "unprocessed"),
        (5, "4", "unprocessed"),
    ]
    assert rest["next"] is None
    assert await error_of(await client.get("/info?limit=0")) == "invalid_argument"


# Queues by their names


async def push(client: httpx.AsyncClient, *data: Any) -> list[int]:
    answer = await client.post("/queues/jobs/messages", json=[{"data": one} for one in data])
    assert answer.status_code == 201
    ids: list[int] = answer.json()["ids"]
    return ids


async def take(client: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    answer = await client.post(f"/queues/jobs/messages/next{query}")
    assert answer.status_code == 200
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def test_whatever_json_is_pushed_comes_back(client: httpx.AsyncClient, bus: Bus) -> None:
    data = ["text", {"a": [1, None]}, 12.5, None, True, []]
    assert await push(client, *data) == [1, 2, 3, 4, 5, 6]
    one = await client.post("/queues/jobs/messages", json={"data": "x", "key": "k", "headers": {"a": "b"}})
    assert (one.status_code, one.json()) == (201, {"ids": [7]})
    async with bus.queue("jobs") as queue:
        await queue.push(b"\x00\xff")

    taken = await take(client, "?limit=10")

    assert [message["data"] for message in taken] == [*data, "x", "AP8="]
    assert [message["attempts"] for message in taken] == [1] * 8
    assert (taken[6]["key"], taken[6]["headers"], taken[7]["encoding"]) == ("k", {"a": "b"}, "base64")


async def test_done_takes_the_lease_and_may_be_repeated(client: httpx.AsyncClient, clock: FakeClock) -> None:
    await push(client, "a", "b")
    first, second = await take(client, "?limit=2")
    path, lease = "/queues/jobs/messages/1/done", {"lease": first["lease"]}

    assert [(await client.post(path, json=lease)).status_code for _ in range(2)] == [204, 204]
    assert (await client.post(path)).status_code == 400
    clock.advance(11)
    assert await take(client)
    late = await client.post("/queues/jobs/messages/2/done", json={"lease": second["lease"]})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "lease_lost")


async def test_several_are_finished_at_once(client: httpx.AsyncClient) -> None:
    await push(client, *"abc")
    taken = await take(client, "?limit=2")
    finished = [{"id": one["id"], "lease": one["lease"]} for one in taken]

    answer = await client.post(
        "/queues/jobs/messages/done", json={"messages": [*finished, {"id": 3, "lease": taken[0]["lease"]}]}
    )

    assert (answer.status_code, answer.json()) == (200, {"done": [1, 2], "lost": [3]})


async def test_a_message_is_given_back_at_once_or_later(client: httpx.AsyncClient, clock: FakeClock) -> None:
    await push(client, "a", "b")
    (message,) = await take(client)
    released = await client.post("/queues/jobs/messages/1/release", json={"lease": message["lease"]})
    (again,) = await take(client)

    delayed = await client.post("/queues/jobs/messages/1/release", json={"lease": again["lease"], "delay": 60})

    assert (released.status_code, delayed.status_code) == (204, 204)
    assert (again["id"], again["attempts"]) == (1, 2)
    assert [one["id"] for one in await take(client, "?limit=9")] == [2]
    clock.advance(61)
    assert [one["id"] for one in await take(client, "?limit=9")] == [1, 2]


async def test_more_time_is_given_to_who_holds_a_message(client: httpx.AsyncClient, clock: FakeClock) -> None:
    await push(client, "a")
    (message,) = await take(client, "?timeout=5")
    lease = {"lease": message["lease"], "timeout": 100}

    assert (await client.post("/queues/jobs/messages/1/extend", json=lease)).status_code == 204

    clock.advance(50)
    assert await take(client) == []
    clock.advance(51)
    assert await take(client)
    assert (await client.post("/queues/jobs/messages/1/extend", json=lease)).status_code == 409


async def test_who_waits_gets_what_comes(client: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(take(client, "?wait=30"))
    await asyncio.sleep(0.05)
    assert await take(client, "?wait=0.05") == []

    await push(client, "a")

    assert [message["data"] for message in await waiting] == ["a"]


async def test_a_client_that_went_away_while_it_waited_takes_nothing(client: httpx.AsyncClient, bus: Bus) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/queues/jobs/messages/next?wait=30", timeout=0.2)
    await asyncio.sleep(0.1)
    await push(client, "a")

    (message,) = await take(client)

    assert message["attempts"] == 1


async def test_a_server_that_stops_answers_those_who_wait(bus: Bus) -> None:
    application = app(bus)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30) as client:
        waiting = asyncio.create_task(client.post("/queues/jobs/messages/next?wait=30"))
        await asyncio.sleep(0.1)

        await application.close()

        assert (await waiting).json() == {"messages": []}


async def test_a_delayed_message_has_no_id_yet(client: httpx.AsyncClient) -> None:
    answer = await client.post("/queues/jobs/messages", json=[{"data": "now"}, {"data": "later", "delay": 60}])

    assert answer.json() == {"ids": [1, None]}
    state = (await client.get("/queues/jobs")).json()
    assert (state["waiting"], state["delayed"]) == (1, 1)


async def test_queues_are_listed_with_what_is_in_them(client: httpx.AsyncClient) -> None:
    await push(client, *"abc")
    await take(client)

    state = {"name": "jobs", "waiting": 2, "held": 1, "dead": 0, "delayed": 0}
    assert (await client.get("/queues/jobs")).json() == state
    assert (await client.get("/queues")).json() == {"queues": [state]}
    assert (await client.get("/queues?prefix=x")).json() == {"queues": []}
    absent = await client.get("/queues/other")
    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "no_such_queue")


async def test_dead_letters_are_listed_and_pushed_once_more(bus: Bus, clock: FakeClock) -> None:
    async with visiting(bus, max_attempts=1, pending_timeout=10) as client:
        await push(client, {"a": 1}, "b")
        await take(client, "?limit=2")
        clock.advance(11)
        assert await take(client) == []

        letters = (await client.get("/queues/jobs/dead")).json()["letters"]
        one = (await client.post("/queues/jobs/dead/redrive", json={"limit": 1})).json()
        rest = (await client.post("/queues/jobs/dead/redrive")).json()

        assert [(letter["data"], letter["attempts"]) for letter in letters] == [({"a": 1}, 1), ("b", 1)]
        assert (one, rest) == ({"redriven": 1}, {"redriven": 1})
        assert [message["data"] for message in await take(client, "?limit=9")] == [{"a": 1}, "b"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/queues/jobs/messages", "{}", 400),
        ("POST", "/queues/jobs/messages", "[]", 400),
        ("POST", "/queues/jobs/messages", '{"data": 1, "other": 2}', 400),
        ("POST", "/queues/jobs/messages", '{"data": 1, "headers": {"onebus-due": "1"}}', 400),
        ("POST", "/queues/jobs/messages", '{"data": 1, "delay": -1}', 400),
        ("POST", "/queues/jobs/messages", '{"data": "\\ud800"}', 400),
        ("POST", "/queues/jobs/messages", f'"{"x" * (3 << 20)}"', 413),
        ("POST", "/queues/jobs/messages", f'{{"data": "{"x" * (1100 << 10)}"}}', 413),
        ("POST", "/queues/jobs/messages/next?limit=0", "", 400),
        ("POST", "/queues/jobs/messages/next?limit=1.5", "", 400),
        ("POST", "/queues/jobs/messages/next?wait=1e9", "", 400),
        ("POST", "/queues/jobs/messages/next?timeout=nan", "", 400),
        ("POST", "/queues/jobs/messages/x/done", '{"lease": "1"}', 400),
        ("POST", "/queues/jobs/messages/0/done", '{"lease": "1"}', 400),
        ("POST", "/queues/jobs/messages/1/done", '{"lease": "-1"}', 400),
        ("POST", "/queues/jobs/messages/1/done", '{"lease": 1}', 400),
        ("POST", "/queues/jobs/messages/1/done", '{"lease": "1"}', 409),
        ("POST", "/queues/jobs/messages/1/other", "{}", 404),
        ("POST", "/queues/a%7Cb/messages", '{"data": 1}', 400),
        ("POST", "/queues//messages", '{"data": 1}', 404),
        ("GET", "/queues/jobs/messages", "", 405),
        ("HEAD", "/queues/jobs/messages/next", "", 405),
        ("DELETE", "/queues", "", 405),
    ],
)
async def test_what_cannot_be_is_refused_with_a_status_and_a_code(
    client: httpx.AsyncClient, method: str, path: str, body: str, status: int
) -> None:
    answer = await client.request(method, path, content=body)

    assert answer.status_code == status
    if method != "HEAD":
        assert set(answer.json()["error"]) == {"code", "text"}


async def test_queues_that_nobody_uses_are_closed_when_there_are_too_many(bus: Bus) -> None:
    async with visiting(bus, max_open_queues=2) as client:
        for number in range(6):
            path = f"/queues/q{number}/messages"
            assert (await client.post(path, json={"data": number})).json() == {"ids": [1]}

        def open_queues() -> int:
            tasks = [task.get_name() for task in asyncio.all_tasks()]
            return sum(name.startswith("onebus-hands") for name in tasks)

        async def are_few() -> bool:
            return open_queues() <= 2

        assert await eventually(are_few)
        assert [message["data"] for message in (await client.get("/queues/q0/messages/next")).json()["messages"]] == [0]


async def test_the_description_names_every_path(client: httpx.AsyncClient) -> None:
    document = json.loads((await client.get("/openapi.json")).text)

    assert document["openapi"] == "3.1.0"
    assert "/queues/{name}/messages/{id}/done" in document["paths"]
