"""The connector file: what is taken, what is refused, and how it is said."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest

from compactor.settings import CompactionPolicy
from connectors.config.connector import ConnectorConfig, with_settings
from connectors.config.definitions import definitions
from connectors.config.engine_settings import engine_settings
from connectors.config.errors import FaultyConfigError
from connectors.errors import EXIT_CONFIG, ConfigError, exit_code

LEAST: dict[str, Any] = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}


def read(**changes: Any) -> ConnectorConfig:
    return ConnectorConfig.model_validate(LEAST | {name.replace("__", "."): value for name, value in changes.items()})


def settings(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (LEAST | changes).items() if value is not ...}


def faults(changes: dict[str, Any]) -> list[str]:
    with pytest.raises(FaultyConfigError) as caught:
        ConnectorConfig.model_validate(settings(changes))
    return [str(fault) for fault in caught.value.faults]


def test_three_keys_are_enough() -> None:
    """A connector needs a name, its class and topics; everything else has Kafka's, Connect's or keyfold's default."""
    config = ConnectorConfig.model_validate(LEAST)
    assert engine_settings(config).policy == CompactionPolicy()
    assert config.output_topic("t") == "t.compacted"
    assert config.group_id == "connect-c"
    assert config.transactional_id(3) == "c-3"
    assert (config.tasks_max, config.max_offsets_per_trigger, config.snapshot_location) == (None, None, None)


def test_every_default_is_taken_when_it_is_written_out() -> None:
    """A file that writes every default out means the same as one that leaves them out."""
    written = {key.name: key.default for key in definitions(ConnectorConfig).values() if key.default is not None}
    config = ConnectorConfig.model_validate(LEAST | written)
    assert config.model_dump(exclude={"given"}) == ConnectorConfig.model_validate(LEAST).model_dump(exclude={"given"})


@pytest.mark.parametrize(
    ("key", "given", "attribute", "value"),
    [
        ("min.compaction.lag.ms", 5, "min_compaction_lag_ms", 5),
        ("min.compaction.lag.ms", " 5 ", "min_compaction_lag_ms", 5),
        ("bootstrap.fold.enable", False, "bootstrap_fold_enable", False),
        ("bootstrap.fold.enable", "FALSE", "bootstrap_fold_enable", False),
        ("topics", " a , b", "topics", ("a", "b")),
        ("connector.class", "CompactedTopic", "connector_class", "keyfold.CompactedTopic"),
        ("output.topic", "none", "publishes", False),
        ("on.data.loss", "SKIP", "on_data_loss", "skip"),
        ("errors.scope", "Topic", "errors_scope", "topic"),
        ("debezium.truncate", "FAIL", "debezium_truncate", "fail"),
        ("max.offsets.per.trigger", "unlimited", "max_offsets_per_trigger", None),
        ("snapshot.location", "none", "snapshot_location", None),
        ("snapshot.string.columns", "NONE", "snapshot_string_columns", frozenset()),
        ("errors.retry.timeout", 0, "errors_retry_timeout_ms", 0),
        ("retention.ms", "-1", "retention_ms", -1),
        ("tasks.max", "3", "tasks_max", 3),
        ("output.topic.config.segment.ms", 9, "output_topic_config", {"segment.ms": "9"}),
        ("consumer.override.fetch.min.bytes", 9, "consumer_override", {"fetch.min.bytes": "9"}),
    ],
)
def test_values_are_taken_as_connect_takes_them(key: str, given: object, attribute: str, value: object) -> None:
    """A number and its text are the same, blanks and the case of words do not count."""
    assert getattr(ConnectorConfig.model_validate(LEAST | {key: given}), attribute) == value


@pytest.mark.parametrize(("given", "columns"), [("value", {"value"}), (" Value, KEY ", {"key", "value"})])
def test_columns_of_text_reach_the_engine(given: str, columns: set[str]) -> None:
    """In any order and case."""
    config = ConnectorConfig.model_validate(LEAST | {"snapshot.location": "s", "snapshot.string.columns": given})
    assert engine_settings(config).snapshot_string_columns == columns


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"storage.location": "d"},
            "storage.location: is a key of the worker file, not of the connector file",
        ),
        ({"listeners": ""}, "listeners: is a key of the worker file, not of the connector file; move it there."),
        ({"topcs": "t"}, 'topcs: unknown key; did you mean "topics"?'),
        ({"min_compaction_lag_ms": 1}, 'did you mean "min.compaction.lag.ms"?'),
        ({"consumer.overide.fetch.min.bytes": 1}, 'did you mean "consumer.override."?'),
        ({"qqqqqqqq": 1}, "qqqqqqqq: unknown key; docs/configuration.md"),
        ({"fetch.min.bytes": 1}, "write consumer.override.fetch.min.bytes"),
        ({"connector.class": ...}, "connector.class: missing; it is required: keyfold.CompactedTopic"),
        ({"connector.class": "io.confluent.S3"}, '"io.confluent.S3" is not allowed: allowed is keyfold.CompactedTopic'),
        ({"name": "a/b"}, 'name: "a/b" is not allowed'),
        ({"name": ".."}, 'name: ".." is not allowed'),
        ({"name": "x" * 201}, "at most 200"),
        ({"name": " "}, 'name: " " is not allowed'),
        ({"topics": None}, "topics: null is not allowed"),
        ({"topics": ["a"]}, 'topics: a list is not allowed; write one text with commas: "a,b".'),
        ({"topics": {}}, "topics: an object is not allowed"),
        ({"topics": "a,,b"}, "has an empty element"),
        ({"topics": "a,a"}, "names a more than once"),
        ({"topics": "a b"}, '"a b" is no topic name'),
        ({"topics": ".."}, '".." is no topic name'),
        ({"topics": ...}, "must configure one of topics or topics.regex"),
        ({"topics.regex": "a.*"}, "mutually exclusive"),
        ({"topics": ..., "topics.regex": "a("}, 'topics.regex: "a(" is not allowed'),
        (
            {"min.compaction.lag.ms": -1},
            'min.compaction.lag.ms: "-1" is not allowed: allowed is a whole number, 0 or more',
        ),
        ({"min.compaction.lag.ms": "1.0"}, '"1.0" is not allowed'),
        ({"min.compaction.lag.ms": 2**63}, "is not allowed"),
        ({"delete.retention.ms": "1_000"}, '"1_000" is not allowed'),
        ({"min.cleanable.dirty.ratio": 1.01}, "allowed is a number from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "allowed is a number from 0 to 1"),
        ({"max.compaction.lag.ms": 0}, "allowed is a whole number, 1 or more"),
        ({"segment.bytes": 1023}, "allowed is a whole number, 1024 or more"),
        ({"retention.ms": -2}, "allowed is -1 (no limit) or a whole number, 0 or more"),
        ({"cleanup.policy": "compacted"}, "allowed is compact, delete, or both"),
        ({"bootstrap.fold.enable": "yes"}, "allowed is true or false"),
        ({"errors.tolerance": "some"}, "allowed is none or all"),
        ({"errors.scope": "partition"}, "allowed is connector or topic"),
        ({"debezium.truncate": "drop"}, "allowed is warn, fail or apply"),
        ({"tasks.max": 0}, "allowed is a whole number"),
        ({"tasks.max": 10_001}, "allowed is a whole number"),
        ({"output.topic": "a b"}, '"a b" is no topic name'),
        ({"output.topic": "${env}.x"}, "is no topic name"),
        ({"output.topic": "__consumer_offsets"}, "internal topics do"),
        ({"output.topic": "__${topic}"}, "internal topics do"),
        ({"topics": "__t"}, 'the output topic of "__t" would be "__t.compacted", which begins as internal topics do'),
        (
            {"errors.deadletterqueue.topic.name": "__transaction_state", "errors.tolerance": "all"},
            "internal topics do",
        ),
        (
            {
                "transforms": "r",
                "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
                "transforms.r.regex": ".*",
                "transforms.r.replacement": "__consumer_offsets",
                "output.topic": "${topic}",
            },
            "begins as internal topics do",
        ),
        ({"output.topic": "o", "topics": "a,b"}, "one topic for several source topics"),
        ({"output.topic": "o", "topics": ..., "topics.regex": "a.*"}, "one topic for several source topics"),
        ({"output.topic": "${topic}"}, "the same connector cannot read it"),
        ({"output.topic": "${topic}", "topics": ..., "topics.regex": "a.*"}, "is the source topic itself"),
        ({"topics": "a,a.compacted"}, '"a.compacted" is the output topic of "a"'),
        ({"topics": "a" * 245}, "more than 249 characters"),
        ({"snapshot.location": "s4://b/x"}, "keyfold knows no stores of the scheme s4:"),
        ({"snapshot.location": "file://host/x"}, "a file: URL has no host"),
        ({"snapshot.interval.ms": 5}, "has no effect without snapshot.location"),
        ({"snapshot.mode": "all", "snapshot.location": "s"}, "allowed is latest or append"),
        ({"snapshot.mode": "append"}, "snapshot.mode: has no effect without snapshot.location"),
        (
            {"snapshot.mode": "append", "snapshot.location": "s"},
            '"append" cannot be: compact in cleanup.policy leaves one record of each key; set cleanup.policy=delete',
        ),
        (
            {"snapshot.mode": "append", "snapshot.location": "s", "cleanup.policy": "compact,delete"},
            "compact in cleanup.policy leaves one record of each key",
        ),
        (
            {"snapshot.location": "s", "cleanup.policy": "delete", "output.topic": "none"},
            "set snapshot.mode=append for snapshots of every record",
        ),
        ({"snapshot.string.columns": "value"}, "snapshot.string.columns: has no effect without snapshot.location"),
        (
            {"snapshot.string.columns": "values", "snapshot.location": "s"},
            '"values" is not allowed: allowed is none, or some of key, value with commas between them',
        ),
        ({"snapshot.value.format": "typed"}, "snapshot.value.format: has no effect without snapshot.location"),
        ({"snapshot.key.format": "typed"}, "snapshot.key.format: has no effect without snapshot.location"),
        (
            {"snapshot.location": "s", "snapshot.value.format": "typed", "snapshot.string.columns": "value"},
            "snapshot.string.columns: value has its own type with snapshot.value.format=typed",
        ),
        (
            {"snapshot.location": "s", "snapshot.metadata.columns": "key"},
            "allowed is none, or some of _key, _partition, _offset, _timestamp, _headers with commas between them",
        ),
        ({"snapshot.string.columns": "key,key", "snapshot.location": "s"}, "names key more than once"),
        (
            {"compaction.order": "header:"},
            "allowed is offset, timestamp, header: with its name, or field: with its path",
        ),
        ({"compaction.scope": "topics"}, "allowed is partition or topic"),
        ({"compaction.scope": "topic", "cleanup.policy": "compact,delete"}, "Set cleanup.policy=compact; if keys"),
        ({"compaction.scope": "topic", "state.index": "never"}, "state.index is never. Set state.index=auto."),
        (
            {"compaction.scope": "topic", "output.source.headers.enable": "false"},
            "and output.source.headers.enable is false. Set it to true.",
        ),
        ({"compaction.order": "time"}, "allowed is offset, timestamp, header: with its name, or field: with its path"),
        ({"compaction.order": f"header:{'n' * 250}"}, "a header's name of more than 249 bytes is not taken"),
        ({"compaction.order": f"field:{'n' * 250}"}, "a field's name of more than 249 bytes is not taken"),
        (
            {"compaction.order": "field:a..b"},
            "allowed is offset, timestamp, header: with its name, or field: with its path",
        ),
        ({"compaction.order": "field:a.b"}, "values have fields only if a converter reads them"),
        (
            {"compaction.order": "timestamp", "cleanup.policy": "delete", "output.topic": "none"},
            "no keys are compared without compact in cleanup.policy",
        ),
        ({"compaction.order": "timestamp", "state.index": "never"}, "and state.index is never"),
        ({"publish.unchanged": "drop"}, "allowed is send or skip"),
        ({"publish.unchanged": "skip", "cleanup.policy": "compact,delete"}, "it needs cleanup.policy=compact alone"),
        ({"publish.unchanged": "skip", "output.topic": "none"}, "nothing is published with output.topic=none"),
        ({"publish.unchanged": "skip", "state.index": "never"}, "and state.index is never"),
        ({"compaction.fill": "all"}, "allowed is none or unavailable"),
        ({"compaction.fill": "unavailable", "value.converter": "keyfold.String"}, "have fields only if a converter"),
        ({"compaction.fill": "unavailable", "state.index": "never"}, "and state.index is never"),
        ({"compaction.fill": "unavailable", "cleanup.policy": "delete"}, "without compact in cleanup.policy"),
        ({"unavailable.value.placeholder": "hex:0"}, "a text of 1 to 1000 bytes, or hex: and digits"),
        ({"unavailable.value.placeholder": ""}, "a text of 1 to 1000 bytes, or hex: and digits"),
        ({"restart.backoff.initial.ms": 9, "restart.backoff.max.ms": 8}, "is greater than restart.backoff.max.ms (8)"),
        ({"errors.deadletterqueue.topic.name": "d"}, "set errors.tolerance=all"),
        ({"errors.deadletterqueue.context.headers.enable": True}, "has no effect without"),
        (
            {"errors.deadletterqueue.topic.name": "t", "errors.tolerance": "all"},
            "The DLQ topic 't' may not be included",
        ),
        ({"errors.deadletterqueue.topic.name": "t.compacted", "errors.tolerance": "all"}, "is the output topic"),
        ({"output.topic.config.cleanup.policy": "delete"}, "keyfold sets this itself"),
        ({"output.topic.config.segment.byte": 1}, 'did you mean "segment.bytes"?'),
        ({"consumer.override.group.id": "g"}, "consumer.override.group.id: cannot be set"),
        ({"group.id": "g"}, "group.id: cannot be set: the group is connect-<name>."),
        ({"bootstrap.servers": "b:1"}, "bootstrap.servers: cannot be set: all clients talk to the one cluster"),
        ({"fetch.min.bytes": 2}, "write consumer.override.fetch.min.bytes"),
        ({"producer.override.linger.ms": "x"}, 'producer.override.linger.ms: "x" is not allowed'),
        ({"topics": "${env:KF_NOT_THERE}"}, "${env:KF_NOT_THERE} cannot be resolved"),
        *(
            ({name: "/a\0b"}, f"{name}: a text with NUL (\\u0000) in it is not allowed.")
            for name in ("topics", "snapshot.location", "consumer.override.ssl.ca.location")
        ),
    ],
)
def test_a_fault_names_key_value_and_what_is_allowed(changes: dict[str, Any], said: str) -> None:
    """Whatever is wrong is refused, and the sentence says what to change."""
    assert said in "\n".join(faults(changes))


@pytest.mark.parametrize(
    "key",
    [
        "config.action.reload", "initial_state",
    ],
)  # fmt: skip
def test_keys_of_connect_that_come_later_are_refused(key: str) -> None:
    """A key of Kafka Connect whose work is not there is refused with what it belongs to."""
    assert "not available yet in keyfold" in faults({key: "x"})[0]


def test_all_faults_come_at_once() -> None:
    """One error lists every fault, one a line, each with the file, and ends a command with exit code 3."""
    with pytest.raises(ConfigError) as caught:
        ConnectorConfig.model_validate(
            LEAST | {"topcs": 1, "tasks.max": 0, "min.compaction.lag.ms": -1, "topics": None}
        )
    lines = caught.value.message.splitlines()
    assert len(lines) == 4
    assert all(line.startswith('connector "c": ') for line in lines)
    assert exit_code(caught.value) == EXIT_CONFIG


def test_the_lags_are_compared() -> None:
    """min.compaction.lag.ms may not be greater than max.compaction.lag.ms (LogConfig.validateValues)."""
    assert read(min__compaction__lag__ms=5, max__compaction__lag__ms=5).max_compaction_lag_ms == 5
    assert (
        "is greater than max.compaction.lag.ms (4)"
        in faults({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4})[0]
    )


def test_a_config_goes_around() -> None:
    """What was given makes an equal configuration again, and a configuration can be sent to another process."""
    config = read(topics="a,b", tasks__max="2", producer__override__linger__ms=7)
    assert ConnectorConfig.model_validate(config.given) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_with_settings_checks_again() -> None:
    """Changed settings are checked like a file."""
    assert with_settings(read(), {"segment.bytes": 4096}).segment_bytes == 4096
    with pytest.raises(ConfigError):
        with_settings(read(), {"segment.bytes": 1})


def test_a_config_never_shows_a_secret() -> None:
    """Neither repr nor the printable settings hold a secret that was written out; a placeholder stays."""
    config = read(
        consumer__override__sasl__password="open-sesame", producer__override__sasl__password="${env:PW}", tasks__max=1
    )
    assert "open-sesame" not in repr(config)
    shown = config.effective()
    assert shown["consumer.override.sasl.password"] == "[hidden]"
    assert shown["producer.override.sasl.password"] == "${env:PW}"
    assert (shown["tasks.max"], shown["segment.bytes"]) == ("1", "134217728")


def test_a_resolved_value_that_is_wrong_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a value that a placeholder stands for shows the placeholder, never the value."""
    monkeypatch.setenv("KF_TOPICS", "open sesame")
    (fault,) = faults({"topics": "${env:KF_TOPICS}"})
    assert '"${env:KF_TOPICS}" is not allowed' in fault
    assert "open sesame" not in fault


def test_many_topics_take_no_time() -> None:
    """Each is looked at once: a list that was sent over REST would hold up the worker's other threads."""
    topics = [f"t{number}" for number in range(20_000)]
    began = time.thread_time()
    assert read(topics=",".join(topics)).topics == tuple(topics)
    assert time.thread_time() - began < 1.0
