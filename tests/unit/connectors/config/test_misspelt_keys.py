"""A misspelt key is one fault: nothing that follows from its default is said beside it."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.worker import WorkerConfig

LEAST = {"name": "a", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
ROUTER = {
    "transforms.k.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.k.regex": "a",
    "transforms.k.replacement": "b",
}
TOMBSTONE = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"


def faults(**settings: str | None) -> list[str]:
    given = {name: text for name, text in {**LEAST, **settings}.items() if text is not None}
    with pytest.raises(FaultyConfigError) as raised:
        ConnectorConfig.model_validate(given)
    return [fault.key for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("misspelt", "others"),
    [
        ("snapshot.locaton", {"snapshot.interval.ms": "1000", "snapshot.table": "delta", "snapshot.partition.by": "a"}),
        ("snapshot.locaton", {"snapshot.mode": "append", "cleanup.policy": "delete", "output.topic": "none"}),
        ("snapshot.tabel", {"snapshot.table.name": "x", "iceberg.catalog.type": "rest", "snapshot.location": "s"}),
        ("topcs", {"topics": None}),
        ("nmae", {"name": None}),
        ("conector.class", {"connector.class": None}),
        ("value.convertor", {"value.converter.schemas.enable": "false"}),
        ("value.convertor", {"compaction.order": "field:a"}),
        ("key.convertor", {"compaction.key.identity": "avro"}),
        ("transfroms", ROUTER),
        ("predicats", {"transforms": "k", **ROUTER, "transforms.k.predicate": "p", "predicates.p.type": TOMBSTONE}),
        ("transforms.k.regx", {"transforms": "k", **ROUTER, "transforms.k.regex": None}),
        ("errors.tolerence", {"errors.deadletterqueue.topic.name": "d"}),
        ("errors.deadletterqueue.topic.nmae", {"errors.deadletterqueue.context.headers.enable": "true"}),
        ("cleanup.polcy", {"snapshot.mode": "append", "snapshot.location": "s", "output.topic": "none"}),
        ("outptu.topic", {"topics": "t,t.compacted"}),
        ("iceberg.catalgo.type", {"snapshot.table": "iceberg", "snapshot.location": "s3://b/x"}),
        ("max.compaction.lag", {"min.compaction.lag.ms": str((1 << 63) - 1)}),
    ],
)
def test_what_the_default_of_a_misspelt_key_would_cause_is_not_said(
    misspelt: str, others: dict[str, str | None]
) -> None:
    """It would send who reads it to a setting that is there."""
    assert faults(**{misspelt: "x"}, **others) == [misspelt]


def test_every_other_fault_is_still_said() -> None:
    """Also of a key that is there beside its typo, and beside a name that is like none."""
    assert faults(**{"snapshot.locaton": "s", "tasks.max": "q"}) == ["snapshot.locaton", "tasks.max"]
    assert faults(**{"tasks.mx": "1", "tasks.max": "q"}) == ["tasks.mx", "tasks.max"]
    assert faults(qqqq="1", **{"snapshot.interval.ms": "1000"}) == ["qqqq", "snapshot.interval.ms"]
    assert faults(**{"snapshot.locaton": "s", "connectors.watch": "true", "errors.tolerance": "al"}) == [
        "snapshot.locaton",
        "connectors.watch",
        "errors.tolerance",
    ]


def test_a_required_key_of_the_worker_is_not_missing_if_it_is_misspelt() -> None:
    """It is named once, with the key that is meant."""
    given: dict[str, Any] = {"bootstrap.servres": "127.0.0.1:1"}
    with pytest.raises(FaultyConfigError) as raised:
        WorkerConfig(**given)
    assert [str(fault) for fault in raised.value.faults] == [
        'bootstrap.servres: unknown key; did you mean "bootstrap.servers"?'
    ]
