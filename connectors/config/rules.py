"""Checks the rules of a connector's file that take more than one setting.

Each stands in `RULES` with the fields of ConnectorConfig that it gets; it is left out while one of them has a fault of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from compactor.snapshot.partitions import PartitionField
from connectors.chain.hidden_values import places_of
from connectors.config import errors
from connectors.config.errors import Fault
from connectors.config.schema_file_rules import partition_faults, schema_file_faults
from connectors.config.snapshots import typed_by
from connectors.config.table_rules import catalog_file_faults, fixed_table_faults, rest_table_faults, table_faults
from connectors.config.topics import is_internal, is_topic_name

Rule = Callable[..., Iterator[Fault]]
LETTERS: Final = "errors.deadletterqueue.topic.name"
_NAMES: Final = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes internal.segment.bytes leader.replication.throttled.replicas local.retention.bytes
    local.retention.ms max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms
    message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
    min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable
    retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
"""
TOPIC_SETTINGS: Final = frozenset(_NAMES.split())
"""Kafka's topic settings (LogConfig of Kafka 4.3)."""

KEYFOLDS_OWN: Final[dict[str, str]] = {
    "cleanup.policy": "the output topic has the connector's cleanup.policy",
    "message.timestamp.type": "the output keeps the source's timestamps (CreateTime)",
    "message.timestamp.after.max.ms": "the output takes every timestamp that the source had",
    "message.timestamp.before.max.ms": "the output takes every timestamp that the source had",
    "min.compaction.lag.ms": "the lag has passed when a record is published; set the connector's min.compaction.lag.ms",
    "remote.storage.enable": "Kafka refuses tiered storage for compacted topics",
}
"""Those that keyfold decides, and how."""


def check(values: Mapping[str, Any], placeholders: Mapping[str, str]) -> tuple[Fault, ...]:
    """Runs the rules on `values`: the fields, with their values, that have no fault of their own.

    In addition `outputs` has the output topic of each topic of `topics`, as far as nothing is wrong with what says it,
    `written_value` the converter that writes values, and `limits` those of placeholders. `placeholders` has the fields
    that get their values from placeholders, with their keys: a fault shows no such value.
    """
    return tuple(
        _without_values(fault, rule, {placeholders[n] for n in needs if n in placeholders})
        for needs, rule in RULES
        if all(n in values for n in needs)
        for fault in rule(*(values[n] for n in needs))
    )


def _without_values(fault: Fault, rule: Rule, placeholders: Collection[str]) -> Fault:
    if not placeholders or rule in _QUOTE_NOTHING:
        return fault
    said = f"does not fit: what placeholders stand for is not shown, nor why. {places_of(sorted(placeholders))}"
    return Fault(fault.key, said)


def _one_source(topics: tuple[str, ...] | None, pattern: str | None) -> Iterator[Fault]:
    if topics is None and pattern is None:
        yield Fault("topics", "must configure one of topics or topics.regex.")
    if topics is not None and pattern is not None:
        yield Fault("topics", "topics and topics.regex are mutually exclusive options, but both are set; remove one.")


def _exclude_of_pattern(pattern: str | None, exclude: tuple[str, ...] | None) -> Iterator[Fault]:
    if exclude is not None and pattern is None:
        yield Fault("topics.exclude", "has no effect without topics.regex; topics names all that is read. Remove it.")


def _lags(least: int, most: int) -> Iterator[Fault]:
    if least > most:
        text = f'"{least}" is greater than max.compaction.lag.ms ({most}); it must not be.'
        yield Fault("min.compaction.lag.ms", text)


def _fixed_output(template: str, topics: tuple[str, ...] | None, pattern: str | None) -> Iterator[Fault]:
    several = pattern is not None or len(topics or ()) > 1
    if template != "none" and "${topic}" not in template and several:
        text = f'"{template}" is one topic for several source topics; put ${{topic}} into the name.'
        yield Fault("output.topic", text)


def _regex_output(template: str, pattern: str | None) -> Iterator[Fault]:
    if pattern is not None and template == "${topic}":
        yield Fault("output.topic", '"${topic}" is the source topic itself; add something to the name.')


def _own_output(outputs: Mapping[str, str | None]) -> Iterator[Fault]:
    first: dict[str, str] = {}
    for topic, name in outputs.items():
        if name is None:
            continue
        if name in outputs:
            yield Fault("topics", f'"{name}" is the output topic of "{topic}"; the same connector cannot read it.')
        if not is_topic_name(name) or is_internal(name):
            unfit = "begins as internal topics do" if is_topic_name(name) else "is no name of a topic"
            why = "have more than 249 characters" if len(name) > 249 else f'be "{name}", which {unfit}'
            text = f'the output topic of "{topic}" would {why}.'
            yield Fault("output.topic", text)
        other = first.setdefault(name, topic)
        if other != topic:
            yield Fault("transforms", f'"{name}" would be the output topic of "{other}" and of "{topic}".')


def _own_letters(
    letters: str | None, topics: tuple[str, ...] | None, template: str, outputs: Mapping[str, str | None]
) -> Iterator[Fault]:
    if letters is None:
        return
    if letters in (topics or ()):
        text = f"The DLQ topic '{letters}' may not be included in the list of topics consumed by the connector."
        yield Fault(LETTERS, text)
    if letters == template or letters in outputs.values():
        yield Fault(LETTERS, f'"{letters}" is the output topic; dead letters need a topic of their own.')


def _letters_need_tolerance(letters: str | None, tolerance: str) -> Iterator[Fault]:
    if letters is not None and tolerance == "none":
        yield Fault(LETTERS, "nothing would ever be sent there with errors.tolerance=none; set errors.tolerance=all.")


def _needs_letters(letters: str | None, headers: object) -> Iterator[Fault]:
    if letters is None and headers:
        yield Fault("errors.deadletterqueue.context.headers.enable", f"has no effect without {LETTERS}; set that too.")


def _snapshots_need_place(location: str | None, interval: int, strings: frozenset[str], mode: str) -> Iterator[Fault]:
    given = {
        "snapshot.interval.ms": interval != -1,
        "snapshot.string.columns": bool(strings),
        "snapshot.mode": mode != "latest",
    }
    for name in (name for name, is_given in given.items() if is_given and location is None):
        yield Fault(name, _NO_PLACE)


def _typed_columns(
    location: str | None, of_values: str | None, of_keys: str | None, strings: frozenset[str]
) -> Iterator[Fault]:
    formats = {"snapshot.value.format": of_values, "snapshot.key.format": of_keys}
    typed = {name for name, written in formats.items() if written == "typed"}
    yield from (Fault(name, _NO_PLACE) for name in sorted(typed) if location is None)
    for side in sorted(strings):
        if f"snapshot.{side}.format" in typed:
            yield Fault("snapshot.string.columns", f"{side} has its own type with snapshot.{side}.format=typed.")


def _typed_by_others(
    of_values: str | None,
    of_keys: str | None,
    strings: frozenset[str],
    table: str,
    schema_file: Path | None,
    partitions: tuple[PartitionField, ...],
) -> Iterator[Fault]:
    makes = typed_by(table, schema_file, partitions, of_keys)
    if of_values is None and makes and "value" in strings:
        yield Fault("snapshot.string.columns", f"value has its own type with {makes}.")


def _raw_copy(policy: frozenset[str], template: str, location: str | None, mode: str) -> Iterator[Fault]:
    if "compact" in policy:
        if mode == "append":
            text = "compact in cleanup.policy leaves one record of each key; set cleanup.policy=delete, or remove this."
            yield Fault("snapshot.mode", f'"append" cannot be: {text}')
        return
    if template != "none":
        text = (
            "with cleanup.policy=delete there is no latest record of a key to publish; set it to none, or add compact."
        )
        yield Fault("output.topic", text)
    if location is not None and mode != "append":
        text = (
            "with cleanup.policy=delete there is no table of keys; set snapshot.mode=append for snapshots of every "
            "record, remove it, or add compact to cleanup.policy."
        )
        yield Fault("snapshot.location", text)


def _backoff(first: int, longest: int) -> Iterator[Fault]:
    if first > longest:
        text = f'"{first}" is greater than restart.backoff.max.ms ({longest}); it must not be.'
        yield Fault("restart.backoff.initial.ms", text)


def topic_settings(settings: Mapping[str, str]) -> Iterator[Fault]:
    """Yields the faults of `output.topic.config.*`: settings that keyfold decides, or that Kafka does not have."""
    for name in settings:
        if name in KEYFOLDS_OWN:
            yield Fault(name, f"keyfold sets this itself: {KEYFOLDS_OWN[name]}.")
        elif name not in TOPIC_SETTINGS:
            yield Fault(name, errors.unknown(name, TOPIC_SETTINGS, "topic setting"))


def _compared_keys(identity: str, policy: frozenset[str]) -> Iterator[Fault]:
    if identity != "bytes" and "compact" not in policy:
        text = f'"{identity}" has no effect without compact in cleanup.policy: no keys are compared.'
        yield Fault("compaction.key.identity", text)


def _not_default(key: str, default: str, value: str, reasons: Mapping[str, bool]) -> Iterator[Fault]:
    """Yields the `reasons` that hold for which the setting `key` cannot have another value than its `default`."""
    if value != default:
        yield from (Fault(key, f'"{value}" cannot be: {reason}.') for reason, holds in reasons.items() if holds)


_SET_AUTO: Final = "Set state.index=auto"


def _by_what_is_kept(key: str, default: str, value: str, policy: frozenset[str], index: str) -> Iterator[Fault]:
    reasons = {
        "no keys are compared without compact in cleanup.policy": "compact" not in policy,
        f"what is kept of a key is found by an index of keys, and state.index is never. {_SET_AUTO}": index == "never",
    }
    yield from _not_default(key, default, value, reasons)


def _scope(scope: str, policy: frozenset[str], index: str, headers: object) -> Iterator[Fault]:
    reasons = {
        "retention would take a winner before what it has beaten. Set cleanup.policy=compact; if keys are to expire, "
        "keyfold resync --since does it, as often as you need it": policy != {"compact"},
        "what other partitions keep of a key is found by an index of keys, and state.index is never. "
        + _SET_AUTO: index == "never",
        "a record's partition of the source is told by its headers alone, and output.source.headers.enable is false. "
        "Set it to true": not headers,
    }
    yield from _not_default("compaction.scope", "partition", scope, reasons)


def _unchanged(way: str, template: str, policy: frozenset[str], index: str) -> Iterator[Fault]:
    reasons = {
        "nothing is published with output.topic=none": template == "none",
        "it needs cleanup.policy=compact alone: what retention takes of the output would not come again": (
            policy != {"compact"}
        ),
        f"records are compared by an index of keys, and state.index is never. {_SET_AUTO}": index == "never",
    }
    yield from _not_default("publish.unchanged", "send", way, reasons)


_NO_PLACE: Final = "has no effect without snapshot.location; set that too."
RULES: Final[tuple[tuple[tuple[str, ...], Rule], ...]] = (
    (("topics", "topics_regex"), _one_source),
    (("topics_regex", "topics_exclude"), _exclude_of_pattern),
    (("min_compaction_lag_ms", "max_compaction_lag_ms"), _lags),
    (("output_topic_template", "topics", "topics_regex"), _fixed_output),
    (("output_topic_template", "topics_regex"), _regex_output),
    (("outputs",), _own_output),
    (("dead_letter_topic", "topics", "output_topic_template", "outputs"), _own_letters),
    (("dead_letter_topic", "errors_tolerance"), _letters_need_tolerance),
    (("dead_letter_topic", "dead_letter_context_headers"), _needs_letters),
    (("snapshot_location", "snapshot_interval_ms", "snapshot_string_columns", "snapshot_mode"), _snapshots_need_place),
    (
        ("snapshot_location", "snapshot_value_format", "snapshot_key_format", "snapshot_string_columns"),
        _typed_columns,
    ),
    (
        (
            "snapshot_value_format",
            "snapshot_key_format",
            "snapshot_string_columns",
            "snapshot_table",
            "snapshot_schema_file",
            "snapshot_partition_by",
        ),
        _typed_by_others,
    ),
    (
        (
            "snapshot_schema_file",
            "snapshot_location",
            "snapshot_value_format",
            "written_value",
            "limits",
            "snapshot_partition_by",
        ),
        schema_file_faults,
    ),
    (
        (
            "snapshot_partition_by",
            "snapshot_location",
            "snapshot_value_format",
            "snapshot_key_format",
            "snapshot_metadata_columns",
        ),
        partition_faults,
    ),
    (
        (
            "snapshot_table",
            "snapshot_table_name",
            "iceberg_catalog",
            "snapshot_location",
            "snapshot_value_format",
        ),
        table_faults,
    ),
    (("snapshot_table_name", "topics", "topics_regex"), fixed_table_faults),
    (("iceberg_catalog", "limits"), rest_table_faults),
    (("name", "snapshot_location"), catalog_file_faults),
    (("cleanup_policy", "output_topic_template", "snapshot_location", "snapshot_mode"), _raw_copy),
    (("key_identity", "cleanup_policy"), _compared_keys),
    (("order", "cleanup_policy", "state_index"), partial(_by_what_is_kept, "compaction.order", "offset")),
    (("fill", "cleanup_policy", "state_index"), partial(_by_what_is_kept, "compaction.fill", "none")),
    (("scope", "cleanup_policy", "state_index", "output_source_headers_enable"), _scope),
    (("publish_unchanged", "output_topic_template", "cleanup_policy", "state_index"), _unchanged),
    (("restart_backoff_initial_ms", "restart_backoff_max_ms"), _backoff),
)
_QUOTE_NOTHING: Final = frozenset(
    [
        _one_source,
        _exclude_of_pattern,
        _letters_need_tolerance,
        _needs_letters,
        _snapshots_need_place,
        _typed_columns,
        _typed_by_others,
        _raw_copy,
        _regex_output,
        rest_table_faults,
    ]
)
"""Rules with faults that hold no value: what they say may be shown of placeholders too."""
