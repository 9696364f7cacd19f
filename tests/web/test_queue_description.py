"""Many requests that nobody thought of, made from the description of the queues: each answer is one it names."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks
from schemathesis.specs.openapi.schemas import OpenApiSchema

from onebus import Bus
from onebus.web import app
from onebus.web.queues.settings import QueueSettings
from tests.web.threaded import served_in_a_thread

EXAMPLES_EACH = 15

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
]


@pytest.fixture(scope="module")
def description() -> Iterator[OpenApiSchema]:
    bus = Bus(f"memory://{uuid4().hex}")
    with served_in_a_thread(app(bus, queues=QueueSettings(max_wait=0.01, max_attempts=2, pending_timeout=0.05))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_is_one_that_the_description_names(description: OpenApiSchema, mode: GenerationMode) -> None:
    count = 0
    for found in description.get_all_operations():
        assert isinstance(found, Ok)

        @settings(
            max_examples=EXAMPLES_EACH,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )
        @given(found.ok().as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(checks=CHECKS, timeout=10)

        ask()
        count += 1
    assert count == 11
