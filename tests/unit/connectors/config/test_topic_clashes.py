"""Which topics of several connectors fit together: chains do, loops and foreign letters do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.files import OtherFile, clashes
from connectors.config.topic_clashes import refuse_loop
from connectors.errors import OutputError

TOLERANT = {"errors.tolerance": "all"}
LETTERS = "errors.deadletterqueue.topic.name"
ROUTER = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}


def connector(name: str, topics: str, output: str, letters: str | None = None, **more: str) -> ConnectorConfig:
    """A connector of these topics; a pattern begins with /."""
    source = {"topics.regex": topics[1:]} if topics.startswith("/") else {"topics": topics}
    lost = {} if letters is None else {LETTERS: letters, **TOLERANT}
    given = {"name": name, "connector.class": "keyfold.CompactedTopic", "output.topic": output, **source, **lost}
    return ConnectorConfig.model_validate({**given, **more})


def said(*configs: ConnectorConfig) -> list[str]:
    """Returns the faults of the last connector among the others."""
    *others, own = configs
    return [
        str(fault) for fault in clashes(own, [OtherFile(Path(f"{one.name}.json"), one.name, one) for one in others])
    ]


@pytest.mark.parametrize(
    "configs",
    [
        [connector("a", "a", "b"), connector("b", "b", "c"), connector("c", "c", "d")],
        [connector("a", "a", "b", "dead"), connector("b", "b", "c", "dead")],
        [connector("a", "a", "b", "dead"), connector("b", "dead", "c")],
        [
            connector("a", "a", "b", "dead"),
            connector("b", "dead", "c", "deader"),
            connector("c", "deader", "d", "dead2"),
        ],
        [connector("a", "a,z", "${topic}.x"), connector("b", "a.x", "z")],
        [connector("a", "a", "b"), connector("b", "b", "none", "a.dead")],
        [connector("a", "/in-.*", "${topic}.x", "dead"), connector("b", "/in-.*[.]x", "out-${topic}", "dead")],
        [connector("a", "a", "out-a"), connector("b", "/.*", "copy-${topic}")],
        [connector("a", "/a|z", "${topic}.x"), connector("b", "a.x", "z")],
        [connector("a", "/t[0-9]", "${topic}.x"), connector("b", "/t[0-9]", "${topic}.y")],
    ],
)
def test_chains_and_shared_letters_are_allowed(configs: list[ConnectorConfig]) -> None:
    """In any order: also through one connector twice, and over a pattern that matches another one's outputs."""
    assert said(*configs) == []
    assert said(*reversed(configs)) == []


@pytest.mark.parametrize(
    ("configs", "fault"),
    [
        ([connector("a", "a", "b"), connector("b", "b", "a")], 'connector "a" in a.json (b → a → b)'),
        (
            [connector("a", "a", "b"), connector("b", "b", "c"), connector("c", "c", "a")],
            'connector "a" in a.json (c → a → b → c)',
        ),
        ([connector("a", "a", "x", "b"), connector("b", "b", "y", "a")], 'connector "a" in a.json (b → a → b)'),
        ([connector("a", "a", "x", "dead"), connector("b", "dead", "a")], 'connector "a" in a.json (dead → a → dead)'),
        (
            [connector("a", "a,z", "${topic}.x"), connector("c", "z.x", "a"), connector("b", "a.x", "z")],
            "(a.x → z → z.x → a → a.x)",
        ),
        ([connector("a", "/a.*", "x-${topic}"), connector("b", "x-a1", "a1")], "(x-a1 → a1 → x-a1)"),
        ([connector("b", "x-a1", "a1"), connector("a", "/a.*", "x-${topic}")], "(a1 → x-a1 → a1)"),
        ([connector("a", "/.*", "${topic}.x"), connector("b", "/.*", "${topic}.y")], 'connector "a" in a.json'),
        (
            [connector("a", "/q|orders[.].*", "${topic}.x"), connector("b", r"/orders\..*|p", "${topic}.y")],
            'connector "a" in a.json',
        ),
        (
            [
                connector(
                    "a", "a", "${topic}", **ROUTER, **{"transforms.r.regex": "a", "transforms.r.replacement": "b"}
                ),
                connector(
                    "b", "b", "${topic}", **ROUTER, **{"transforms.r.regex": "b", "transforms.r.replacement": "a"}
                ),
            ],
            "(b → a → b)",
        ),
    ],
)
def test_a_loop_is_refused(configs: list[ConnectorConfig], fault: str) -> None:
    """Records would go round for ever, whether as records of outputs or as letters."""
    (text,) = said(*configs)
    assert "what is written there comes back by" in text
    assert fault in text
    assert len(said(*reversed(configs))) == 1


UNGUESSED = [
    connector("a", r"/orders[0-9]{4}(\.x\.y)*", "${topic}.x"),
    connector("b", r"/orders[0-9]{4}(\.x\.y)*\.x", "${topic}.y"),
]
"""A loop of patterns that no guess matches."""


@pytest.mark.parametrize(
    ("configs", "topic", "shown"),
    [
        (UNGUESSED, "orders2026", " (orders2026.x"),
        (UNGUESSED[::-1], "orders2026.x", " (orders2026.x"),
        ([connector("a", "/[0-9]+", "x-${topic}"), connector("b", "x-7", "y", "7")], "7", ""),
    ],
)
def test_a_loop_is_found_once_a_topic_is_there(configs: list[ConnectorConfig], topic: str, shown: str) -> None:
    """Patterns alone do not tell, and a topic's name does, before anything of it is read."""
    own = configs[0]
    if shown:
        assert said(*configs) == []
    refuse_loop(own, configs, ["other"])
    with pytest.raises(OutputError) as raised:
        refuse_loop(own, configs, ["other", topic])
    assert f"Connector {own.name}: what it writes comes back to it by connector {configs[1].name}{shown}" in str(
        raised.value
    )


def test_a_chain_is_no_loop_once_its_topics_are_there() -> None:
    """It may lead through one connector twice."""
    configs = [connector("a", "/a|z", "${topic}.x"), connector("b", "a.x", "z")]
    for own in configs:
        refuse_loop(own, configs, ["a", "z", "a.x", "z.x"])


@pytest.mark.parametrize(
    ("configs", "key", "fault"),
    [
        (
            [connector("a", "a", "b"), connector("b", "x", "y", "b")],
            LETTERS,
            '"b" is the output topic of connector "a"',
        ),
        (
            [connector("b", "x", "y", "b"), connector("a", "a", "b")],
            "output.topic",
            '"b" is the dead letter topic of connector "b"',
        ),
        (
            [connector("a", "/a.*", "${topic}.c"), connector("b", "x", "y", "a1.c")],
            LETTERS,
            '"a1.c" is the output topic of connector "a"',
        ),
        (
            [connector("b", "x", "y", "a1.c"), connector("a", "/a.*", "${topic}.c")],
            "output.topic",
            '"a1.c" is the dead letter topic of connector "b"',
        ),
    ],
)
def test_letters_and_outputs_never_share_a_topic(configs: list[ConnectorConfig], key: str, fault: str) -> None:
    """A letter may name a source record as keyfold does: the other connector would take it for a second writer's."""
    (text,) = said(*configs)
    assert text.startswith(f"{key}: {fault}")


def test_topics_of_placeholders_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another user's placeholder stands for is nobody's to read."""
    monkeypatch.setenv("HIDDEN_TOPIC", "hidden-1")
    first = connector("a", "a", "${env:HIDDEN_TOPIC}", "d")
    for own in (connector("b", "hidden-1", "a"), connector("b", "x", "y", "hidden-1")):
        (text,) = said(first, own)
        assert "hidden-1" not in text.replace(own.given.get(LETTERS, "-"), "")
        assert 'connector "a" in a.json' in text
