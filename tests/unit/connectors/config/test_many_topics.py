"""Connectors that name many topics are compared soon: a request may name as many as fit into it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.files import OtherFile, clashes

MANY = 20_000
SOON_S = 3.0
"""CPU time that a comparison may take: 15 times what it does. Each topic against each other one takes 9 s."""


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
    faults = clashes(one, [OtherFile(Path("f"), other.name, other)])
    assert time.thread_time() - began < SOON_S
    outputs = [] if clash is None else [f'"{clash}" is also the output topic of connector "b"']
    assert [fault.text.partition(" in ")[0] for fault in faults] == outputs


class _Counting(ConnectorConfig):
    """Counts how often the output of a topic was asked for."""

    asked: ClassVar[Counter[str]] = Counter()

    def output_topic(self, topic: str) -> str | None:
        self.asked[topic] += 1
        return super().output_topic(topic)


def test_the_outputs_of_named_topics_are_made_once() -> None:
    """There may be a thousand others, and routers match each topic against patterns."""
    one = _Counting.model_validate(_connector("a", topics="t,u,v").given)
    others = [_connector(f"o{number}", topics="w") for number in range(10)]
    _Counting.asked.clear()
    assert clashes(one, [OtherFile(Path("f"), other.name, other) for other in others]) == ()
    assert _Counting.asked == {"t": 1, "u": 1, "v": 1}
