"""Connectors that name many topics are compared soon: a request may name as many as fit into it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.files import OtherFile, clashes

MANY = 20_000
SOON_S = 3.0
"""As much CPU time all of it may take; each topic against each other one took minutes."""


def _connector(name: str, **settings: str) -> ConnectorConfig:
    given = {"name": name, "connector.class": "keyfold.CompactedTopic", "output.topic": f"${{topic}}.{name}"}
    return ConnectorConfig.model_validate({**given, **settings})


def _topics(*more: str) -> str:
    return ",".join([*(f"topic-{number}" for number in range(MANY)), *more])


@pytest.mark.parametrize(
    ("settings", "others", "clash"),
    [
        ({"topics": _topics()}, {"topics": _topics()}, None),
        ({"topics": _topics("x"), "output.topic": "${topic}.b"}, {"topics": "x"}, "x.b"),
        ({"topics": "x", "output.topic": "${topic}.b"}, {"topics": _topics("x")}, "x.b"),
        ({"topics": _topics()}, {"topics.regex": "topic-.*"}, None),
        ({"topics": _topics("x"), "output.topic": "${topic}.b"}, {"topics.regex": "x"}, "x.b"),
        ({"topics.regex": "x", "output.topic": "${topic}.b"}, {"topics": _topics("x")}, "x.b"),
    ],
)
def test_connectors_of_many_topics_are_compared_soon(
    settings: dict[str, str], others: dict[str, str], clash: str | None
) -> None:
    """Whether they name their topics or have a pattern; an output of both is found."""
    one, other = _connector("a", **settings), _connector("b", **others)
    began = time.thread_time()
    faults = [clashes(one, [OtherFile(Path("f"), other.name, other)]) for _ in range(10)]
    assert time.thread_time() - began < SOON_S
    assert {len(found) for found in faults} == {0 if clash is None else 1}
    assert clash is None or f'"{clash}" is also the output topic of connector "b"' in faults[0][0].text
