"""Compares two workers' answers to one request: status, media type, Location and the form of the body."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.support.connect.asking import Answer, Sink
from tests.support.connect.requests import CLASS, PLUGIN

_VALUES: Final = frozenset({"connector", "error_code", "id", "kafka_partition", "kafka_topic", "name", "state", "task"})
"""Members of JSON objects that have to be equal; of others only the type is compared."""

_OPEN: Final = frozenset({"config", "configs", "groups", "recommended_values", "errors", "dependents"})
"""Members whose content is each worker's own: only that they are an object, or a list, is compared."""

_SAME_TEXT: Final = frozenset({404, 405, 406, 409, 415})
"""Codes whose message has to be the same, but for a sink's name: tools look for it."""


def differences(theirs: Answer, ours: Answer, sinks: tuple[Sink, Sink]) -> Iterator[str]:
    """Yields what differs, one line each."""
    if theirs.status != ours.status:
        # A client's mistake is said to be one, where Kafka Connect takes it for its own.
        if (theirs.status, ours.status) != (500, 400) or not _message(ours, sinks[1]):
            yield f"status {ours.status} instead of {theirs.status}"
        return
    if theirs.location != ours.location:
        yield f"Location {ours.location} instead of {theirs.location}"
    # Kafka Connect's errors of its HTTP framework have no media type; ours have that of all errors.
    if theirs.kind != ours.kind and not (theirs.kind is None and theirs.status >= 400):
        yield f"media type {ours.kind} instead of {theirs.kind}"
    if theirs.status in _SAME_TEXT and _message(theirs, sinks[0]) != _message(ours, sinks[1]):
        yield f"message {_message(ours, sinks[1])!r} instead of {_message(theirs, sinks[0])!r}"
    yield from _in_body(_neutral(theirs.body, sinks[0]), _neutral(ours.body, sinks[1]), "body")


def _neutral(body: Any, sink: Sink) -> Any:
    """Returns `body` without the sink's own names."""
    return json.loads(json.dumps(body).replace(sink.class_name, CLASS).replace(sink.plugin, PLUGIN))


def _message(answer: Answer, sink: Sink) -> str:
    body = _neutral(answer.body, sink)
    return str(body.get("message", "") if isinstance(body, Mapping) else body)


def _in_body(theirs: Any, ours: Any, where: str) -> Iterator[str]:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        if theirs.keys() != ours.keys() and not _is_open(where):
            yield f"{where} has {sorted(ours)} instead of {sorted(theirs)}"
            return
        for name in theirs.keys() & ours.keys():
            yield from _in_body(theirs[name], ours[name], f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from _in_list(theirs, ours, where)
    elif _type(theirs) != _type(ours) or (where.rpartition(".")[2] in _VALUES and theirs != ours):
        yield f"{where} is {ours!r} instead of {theirs!r}"


def _in_list(theirs: list[Any], ours: list[Any], where: str) -> Iterator[str]:
    if _is_open(where):
        theirs, ours = theirs[:1], ours[:1]
    elif len(theirs) != len(ours):
        yield f"{where} has {len(ours)} members instead of {len(theirs)}"
    for number, (left, right) in enumerate(zip(theirs, ours, strict=False)):
        if _is_open(where) and isinstance(left, Mapping):
            if left.keys() != right.keys():
                yield f"{where} has members with {sorted(right)} instead of {sorted(left)}"
            continue
        yield from _in_body(left, right, f"{where}[{number}]")


def _is_open(where: str) -> bool:
    return where == "body" or where.rpartition(".")[2] in _OPEN


def _type(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
