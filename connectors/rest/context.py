"""What every endpoint works with: the herder, the worker's settings, and how the worker is called from outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from msgspec import Struct
from prometheus_client import CollectorRegistry

from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.config.stores import worker_storage
from connectors.config.worker import WorkerConfig
from connectors.rest import shapes
from connectors.rest.logger_levels import LoggerLevels
from connectors.rest.slow_calls import Slow
from connectors.runtime.herder import Herder
from connectors.runtime.supervised_connector import ActiveTopics

_STORAGES: Final = 100
"""Storages of connectors that are kept opened: some hundred bytes each, but for the connections of an object store."""

_SETTINGS: Final = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_NUMBER: Final = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,18}$"}]}
_OFFSET: Final = {
    "type": "object",
    "required": ["partition"],
    "additionalProperties": False,
    "properties": {
        "partition": {
            "type": "object",
            "required": ["kafka_topic", "kafka_partition"],
            "additionalProperties": False,
            "properties": {"kafka_topic": {"type": "string", "minLength": 1}, "kafka_partition": _NUMBER},
        },
        "offset": {
            "type": ["object", "null"],
            "required": ["kafka_offset"],
            "additionalProperties": False,
            "properties": {"kafka_offset": _NUMBER},
        },
    },
}
_BODIES: Final[dict[str, dict[str, Any]]] = {
    "Config": _SETTINGS,
    "ConfigPatch": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    "CreateConnectorRequest": {
        "type": "object",
        "required": ["name", "config"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "config": _SETTINGS,
            "initial_state": {"type": "string", "enum": ["RUNNING", "PAUSED", "STOPPED"]},
        },
    },
    "ConnectorOffsets": {
        "type": "object",
        "required": ["offsets"],
        "additionalProperties": False,
        "properties": {"offsets": {"type": "array", "minItems": 1, "items": _OFFSET}},
    },
    "LoggerLevel": {"type": "object", "required": ["level"], "properties": {"level": {"type": "string"}}},
}
_SAID: Final = {
    400: "The request is not valid.",
    403: "It is switched off.",
    404: "There is none.",
    409: "It contradicts what is there.",
    415: "The body is not JSON.",
    503: "The worker is at too much that waits for the storage, brokers or checks; Retry-After says when to ask again.",
}


class Identity(Struct, frozen=True):
    """Which worker this is: the URL at which others reach it, its HOST:PORT, its commit, and its cluster's id.

    `cluster_id` returns "" as long as no broker has answered.
    """

    url: str
    worker_id: str
    commit: str
    cluster_id: Callable[[], str]


class RestContext(Struct, frozen=True, dict=True):
    """What endpoints work with; an endpoint that waits for anything but its request does so by `slow`.

    `health` returns how the worker itself is: starting, healthy or unhealthy.
    """

    herder: Herder
    topics: ActiveTopics
    worker: WorkerConfig
    health: Callable[[], str]
    identity: Identity
    metrics: CollectorRegistry
    loggers: LoggerLevels
    clock: Clock
    slow: Slow

    @cached_property
    def storage(self) -> Storage:
        """The worker's storage.location, opened once: to find it takes a third of the time of a look-up."""
        return worker_storage(self.worker)

    @cached_property
    def storage_of(self) -> Callable[[str], Storage]:
        """Opens the storage of a connector, once for each that was asked for last."""
        return lru_cache(maxsize=_STORAGES)(self.storage.sub)


async def _context(request: Request) -> RestContext:
    context: RestContext = request.app.state.context
    return context


ContextDependency = Annotated[RestContext, Depends(_context)]


def error_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Returns the answers of an endpoint's errors, for `/openapi.json`."""
    return {code: {"model": shapes.ErrorMessage, "description": _SAID[code]} for code in codes}


def json_body(name: str) -> dict[str, Any]:
    """Returns the description of a request's body, which `bodies.json_object` reads."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _BODIES[name]}}}}
