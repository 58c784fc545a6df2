"""`/openapi.json` is true: requests that are made of it, good and bad ones, are answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.rest import RestWorker, rest_worker

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 10


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestWorker]:
    with rest_worker(tmp_path_factory.mktemp("worker")) as found:
        found.create("a")
        yield found


@pytest.fixture(scope="module")
def described(worker: RestWorker) -> object:
    return schemathesis.openapi.from_url(f"{worker.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_endpoint_is_as_described(case: schemathesis.Case[Any]) -> None:
    """Status, media type, headers and body of each answer are in the description, and none is a defect of ours."""
    case.call_and_validate(checks=CHECKS)


def test_every_endpoint_is_described(worker: RestWorker) -> None:
    """What the page has and what is served are the same."""
    paths = worker.ask("GET", "/openapi.json").json()["paths"]
    assert {"/", "/health", "/metrics", "/connectors/{connector}/config", "/admin/loggers/{logger}"} <= set(paths)
    assert all(one.get("description") for methods in paths.values() for one in methods.values())
