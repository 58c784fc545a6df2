"""A connector's settings are bounded, and what is within the bounds is checked soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import checked, load_worker
from connectors.config.flat_file import LONGEST_SETTINGS, MOST_SETTINGS, MOST_STEPS
from connectors.config.secrets import text_of_connector
from connectors.config.worker import WorkerConfig
from tests.support.cli import worker_file

PACKAGE = "org.apache.kafka.connect.transforms"
BASE = {"name": "a", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
ROOM = LONGEST_SETTINGS - 2_000
SOON_S = 6.0
"""As much CPU time a check may take; on a quiet machine each takes below one."""


def _transform(kind: str, **settings: str) -> dict[str, str]:
    named = {f"transforms.x.{name.replace('_', '.')}": text for name, text in settings.items()}
    return {"transforms": "x", "transforms.x.type": f"{PACKAGE}.{kind}", **named}


def _routers(count: int, **more: str) -> dict[str, str]:
    """The settings of so many RegexRouters, each of which matches every topic and leaves it its name."""
    named = {
        f"transforms.r{number}.{name}": text
        for number in range(count)
        for name, text in (
            ("type", f"{PACKAGE}.RegexRouter"),
            ("regex", f"(.*)(?:z{{{number + 1}}})?"),
            ("replacement", "$1"),
        )
    }
    return {"transforms": ",".join(f"r{number}" for number in range(count)), **named, **more}


def _topics(count: int) -> str:
    return ",".join(f"topic-{number}" for number in range(count))


BY_TOPIC = {
    "predicates": "p",
    "predicates.p.type": f"{PACKAGE}.predicates.TopicNameMatches",
    "predicates.p.pattern": ".*",
}


@pytest.fixture
def worker(tmp_path: Path) -> WorkerConfig:
    return load_worker(worker_file(tmp_path))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({f"consumer.override.a{number}": "b" for number in range(MOST_SETTINGS)}, "has 1003 settings; allowed are"),
        ({"topics": "t" * LONGEST_SETTINGS}, "characters of settings; allowed are"),
        ({"t" * LONGEST_SETTINGS: ""}, "characters of settings; allowed are"),
        ({"transforms": ",".join("x" * (MOST_STEPS + 1))}, "transforms: names 101; allowed are 100"),
        ({"predicates": ",".join("x" * (MOST_STEPS + 1))}, "predicates: names 101; allowed are 100"),
        (_routers(100, topics=_topics(1_001)), "transforms: RegexRouters and their predicates are 100 for 1001 topics"),
        (
            {
                **_routers(6, topics=_topics(10_000), **BY_TOPIC),
                **{f"transforms.r{n}.predicate": "p" for n in range(6)},
            },
            "RegexRouters and their predicates are 12 for 10000 topics, 120000 matches in all; allowed are 100000",
        ),
        (_transform("ExtractField$Key", field="a." * 300, field_syntax_version="V2"), "a path may have 200 steps"),
    ],
)
def test_more_is_refused(worker: WorkerConfig, settings: dict[str, str], said: str) -> None:
    """Of a file as of a request, in time."""
    began = time.thread_time()
    checks: tuple[Callable[[Mapping[str, str]], object], ...] = (
        lambda given: checked(given, worker),
        ConnectorConfig.model_validate,
    )
    for check in checks:
        with pytest.raises(FaultyConfigError) as raised:
            check({**BASE, **settings})
        assert said in str(raised.value)
        assert len(str(raised.value)) < 5_000
    assert time.thread_time() - began < SOON_S


@pytest.mark.parametrize(
    "settings",
    [
        _routers(100, topics=_topics(1_000)),
        {
            **_routers(1, topics=_topics(7_000)),
            "transforms": "r0," + ",".join(f"d{number}" for number in range(99)),
            **{f"transforms.d{number}.type": f"{PACKAGE}.DropHeaders" for number in range(99)},
            **{f"transforms.d{number}.headers": "h" * 1_500 for number in range(99)},
        },
        {f"unknown.setting.{number}": "b" for number in range(MOST_SETTINGS - 3)},
        {f"consumer.override.unknown{number}": "b" for number in range(MOST_SETTINGS - 3)},
        {f"transforms.a{number}": "b" for number in range(MOST_SETTINGS - 3)},
        {"transforms": ",".join(f"a{number}" for number in range(MOST_STEPS))},
        {"transforms": ",".join(["a"] * MOST_STEPS)},
        {"topics": ",".join(f"t{number}" for number in range(ROOM // 8))},
        _transform("InsertHeader", header="h", value_literal="9" * ROOM),
        _transform("InsertHeader", header="h", value_literal=f"[[{'{1:1},' * (ROOM // 7)}"),
        _transform("ExtractField$Value", field=".".join("a" * (ROOM // 2)), field_syntax_version="V2"),
        _transform("ValueToKey", fields=",".join(f"f{number}" for number in range(ROOM // 8))),
        {"min.compaction.lag.ms": "9" * ROOM},
    ],
)
def test_what_is_within_is_checked_soon(worker: WorkerConfig, settings: dict[str, str]) -> None:
    """Whatever is in it: some checks look at each setting beside each other."""
    began = time.thread_time()
    with suppress(FaultyConfigError):  # some are faulty, which is not looked at here
        checked({**BASE, **settings}, worker)
    assert time.thread_time() - began < SOON_S


@pytest.mark.parametrize("count", [10, 11])
def test_how_many_routers_a_pattern_of_topics_may_have(worker: WorkerConfig, count: int) -> None:
    """The topics of other connectors go through them, to see whether any output is shared."""
    given = {**BASE, **_routers(count), "topics.regex": "a.*"}
    del given["topics"]
    if count == 10:
        assert checked(given, worker).output_topic("a") == "a.compacted"
        return
    with pytest.raises(FaultyConfigError, match=r"are 11; with topics\.regex 10 are allowed"):
        checked(given, worker)


def _logins(count: int) -> str:
    return ",".join(f"http://u:Geheim-{number}@h{number}:8081" for number in range(count))


AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
WITH_SECRETS: list[tuple[str, dict[str, str], Callable[[int], str]]] = [
    ("value.converter.schema.registry.url", AVRO, _logins),
    (
        "consumer.override.sasl.oauthbearer.extensions",
        {},
        lambda count: ",".join(f"k{number}=Geheim-{number}" for number in range(count)),
    ),
    ("errors.deadletterqueue.topic.name", {}, _logins),  # any setting, whatever it is for
]


@pytest.mark.parametrize(("key", "beside", "text"), WITH_SECRETS)
@pytest.mark.parametrize("over_rest", [True, False])
def test_a_setting_has_no_more_secrets_than_are_hidden(
    worker: WorkerConfig, key: str, beside: dict[str, str], text: Callable[[int], str], over_rest: bool
) -> None:
    """With more it is refused by its name, and none of them is shown; of what is taken each is hidden."""
    config = {**BASE, **beside, key: text(2_000)}
    with pytest.raises(FaultyConfigError) as caught:
        checked(config, worker) if over_rest else ConnectorConfig.model_validate(config)
    assert [fault.key for fault in caught.value.faults] == [key]
    assert "has more than 400 secrets" in str(caught.value)
    assert "Geheim" not in str(caught.value)
    some = {key: text(120)}
    for number in range(120):
        assert "Geheim" not in text_of_connector(f"it says Geheim-{number}.", some), number
