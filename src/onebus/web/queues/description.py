"""The OpenAPI document of the queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from onebus import __version__
from onebus.objects.dispenser import MAX_HANDED_AT_ONCE
from onebus.objects.workqueue import MAX_LEASE_SECONDS
from onebus.web.answers import Answer
from onebus.web.queues import shapes
from onebus.web.queues.named import MAX_LETTERS_LISTED
from onebus.web.queues.settings import QueueSettings

_NAME: Final = "^[^/|\\u0000-\\u001f\\u007f-\\u009f]+$"

JsonObject = dict[str, Any]

_ALWAYS: Final = {400: "The request cannot be understood.", 503: "The store cannot be reached; try again."}
_LOST: Final = {409: "The lease was lost: the message is somebody else's, waits again, or is finished."}
_LARGE: Final = {413: "The body, or a message in it, is too large."}
_ABSENT: Final = {404: "There is nothing at this path."}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """What one method of one path does."""

    id: str
    summary: str
    status: int = 200
    answer: Any = None
    body: Any = None
    is_body_required: bool = True
    query: Sequence[JsonObject] = ()
    problems: Mapping[int, str] = field(default_factory=dict)


def description(settings: QueueSettings) -> Answer:
    """Return the document as an answer."""
    operations = _operations(settings)
    types = [
        one
        for methods in operations.values()
        for operation in methods.values()
        for one in (operation.body, operation.answer)
        if one is not None
    ]
    schemas, components = msgspec.json.schema_components(
        [*types, shapes.Refused], ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(map(repr, types), schemas, strict=False))
    paths = {
        path: {method: _described(path, operation, schema_of) for method, operation in methods.items()}
        for path, methods in operations.items()
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "onebus queues", "version": __version__, "description": __doc__},
        "paths": paths,
        "components": {"schemas": components},
    }
    return Answer(200, "application/json", msgspec.json.encode(document))


def _operations(settings: QueueSettings) -> Mapping[str, Mapping[str, _Operation]]:
    limit = _query("limit", "How many messages to take.", type="integer", minimum=1, maximum=MAX_HANDED_AT_ONCE)
    timeout = _query("timeout", "Seconds to finish them.", type="number", exclusiveMinimum=0, maximum=MAX_LEASE_SECONDS)
    wait = _query("wait", "Seconds to wait for them.", type="number", minimum=0, maximum=settings.max_wait)
    letters = _query("limit", "How many letters to list.", type="integer", minimum=1, maximum=MAX_LETTERS_LISTED)
    take = [limit, timeout, wait]
    return {
        "/queues": {
            "get": _Operation(
                id="list_queues",
                summary="All queues, with what is in them",
                answer=shapes.States,
                query=[_query("prefix", "How their names start.", type="string")],
            )
        },
        "/queues/{name}": {
            "get": _Operation(
                id="get_queue",
                summary="What is in a queue",
                answer=shapes.State,
                problems={404: "There is no such queue."},
            )
        },
        "/queues/{name}/messages": {
            "post": _Operation(
                id="push",
                summary="Push a message, or several; returns when they are stored",
                status=201,
                body=shapes.NewMessage | shapes.NewMessages,
                answer=shapes.Pushed,
                problems=_LARGE,
            )
        },
        "/queues/{name}/messages/next": {
            "get": _Operation(id="next", summary="Take the next messages", answer=shapes.Handed, query=take),
            "post": _Operation(id="take", summary="Take the next messages", answer=shapes.Handed, query=take),
        },
        "/queues/{name}/messages/done": {
            "post": _Operation(
                id="finish_many",
                summary="Say that messages are done; may be repeated",
                body=shapes.FinishMany,
                answer=shapes.FinishedMany,
                problems=_LARGE,
            )
        },
        "/queues/{name}/messages/{id}/done": {
            "post": _Operation(
                id="finish",
                summary="Say that a message is done; may be repeated",
                status=204,
                body=shapes.Finish,
                problems=_LOST | _LARGE,
            )
        },
        "/queues/{name}/messages/{id}/release": {
            "post": _Operation(
                id="release",
                summary="Give a message back, to be handed out again before newer ones",
                status=204,
                body=shapes.Release,
                problems=_LOST | _LARGE,
            )
        },
        "/queues/{name}/messages/{id}/extend": {
            "post": _Operation(
                id="extend",
                summary="Hold a message for longer",
                status=204,
                body=shapes.Extend,
                problems=_LOST | _LARGE,
            )
        },
        "/queues/{name}/dead": {
            "get": _Operation(id="list_dead", summary="The oldest dead letters", answer=shapes.Letters, query=[letters])
        },
        "/queues/{name}/dead/redrive": {
            "post": _Operation(
                id="redrive",
                summary="Push dead letters once more, oldest first",
                body=shapes.Redrive,
                is_body_required=False,
                answer=shapes.Redriven,
                problems=_LARGE,
            )
        },
    }


def _described(path: str, operation: _Operation, schema_of: Mapping[str, JsonObject]) -> JsonObject:
    problems = {**_ALWAYS, **_ABSENT, **operation.problems}
    answered: JsonObject = {"description": operation.summary}
    if operation.answer is not None:
        answered["content"] = _json(schema_of[repr(operation.answer)])
    refused = _json({"$ref": "#/components/schemas/Refused"})
    described: JsonObject = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [*_path_parameters(path), *operation.query],
        "responses": {str(operation.status): answered}
        | {str(status): {"description": text, "content": refused} for status, text in sorted(problems.items())},
    }
    if operation.body is not None:
        body = _json(schema_of[repr(operation.body)])
        described["requestBody"] = {"required": operation.is_body_required, "content": body}
    return described


def _path_parameters(path: str) -> list[JsonObject]:
    found = []
    if "{name}" in path:
        schema = {"type": "string", "minLength": 1, "maxLength": 249, "pattern": _NAME}
        found.append({"name": "name", "in": "path", "required": True, "schema": schema})
    if "{id}" in path:
        schema = {"type": "integer", "minimum": 1, "maximum": 10**15 - 1}
        found.append({"name": "id", "in": "path", "required": True, "schema": schema})
    return found


def _query(name: str, text: str, **schema: Any) -> JsonObject:
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}
