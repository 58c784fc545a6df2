"""The connector file as a value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from compactor.settings import CompactionPolicy, FoldPolicy
from connectors.config import client_names, refused, rules
from connectors.config.faults import Fault, FaultyConfigError
from connectors.config.keys import CONNECTOR_KEYS, CONNECTOR_PREFIXES
from connectors.config.librdkafka import ClientKind
from connectors.config.locations import local_path
from connectors.config.parse import Parsed, Schema, parse
from connectors.config.secrets import masked
from connectors.config.texts import as_texts, effective

_OVERRIDES: Final[dict[str, ClientKind]] = {
    "consumer.override.": "consumer",
    "producer.override.": "producer",
    "admin.override.": "admin",
}


def _hint(name: str) -> str | None:
    if (why := refused.reason(name)) is not None:
        return f"cannot be set: {why}."
    if client_names.is_client_setting(name):
        return f"a client's setting; write consumer.override.{name}, producer.override.{name} or admin.override.{name}."
    return None


SCHEMA = Schema(CONNECTOR_KEYS, CONNECTOR_PREFIXES, _hint)


def _key(name: str) -> Any:
    return Field(alias=name, description=CONNECTOR_KEYS[name].doc)


def _family(name: str) -> Any:
    return Field(alias=name, repr=False)


class ConnectorConfig(BaseModel):
    """Every setting of one connector, checked. Times in ms, sizes in bytes; None where nothing is set.

    `ConnectorConfig.model_validate(mapping)` takes the flat mapping of a connector file (texts, numbers, booleans)
    and raises ConfigError with all of its faults. `given` is that mapping as texts, placeholders unresolved:
    validating it again gives an equal value. The three overrides hold placeholders until a client is made.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str = _key("name")
    connector_class: str = _key("connector.class")
    topics: tuple[str, ...] | None = _key("topics")
    topics_regex: str | None = _key("topics.regex")
    tasks_max: int | None = _key("tasks.max")
    output_topic_template: str = _key("output.topic")
    output_topic_replication_factor: int = _key("output.topic.replication.factor")
    output_topic_config: dict[str, str] = _family("output.topic.config.")
    output_source_headers_enable: bool = _key("output.source.headers.enable")
    cleanup_policy: frozenset[str] = _key("cleanup.policy")
    min_cleanable_dirty_ratio: float = _key("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _key("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _key("max.compaction.lag.ms")
    delete_retention_ms: int = _key("delete.retention.ms")
    retention_ms: int = _key("retention.ms")
    retention_bytes: int = _key("retention.bytes")
    segment_bytes: int = _key("segment.bytes")
    fold_level0_files: int = _key("fold.level0.files")
    fold_tier_runs: int = _key("fold.tier.runs")
    fold_run_max_bytes: int = _key("fold.run.max.bytes")
    fold_full_interval_ms: int = _key("fold.full.interval.ms")
    fold_io_max_bytes_per_second: int | None = _key("fold.io.max.bytes.per.second")
    bootstrap_fold_enable: bool = _key("bootstrap.fold.enable")
    snapshot_location: str | None = _key("snapshot.location")
    snapshot_interval_ms: int = _key("snapshot.interval.ms")
    snapshot_retention_count: int = _key("snapshot.retention.count")
    snapshot_string_columns: frozenset[str] = _key("snapshot.string.columns")
    max_offsets_per_trigger: int | None = _key("max.offsets.per.trigger")
    trigger_interval_ms: int = _key("trigger.interval.ms")
    publish_local_max_records: int = _key("publish.local.max.records")
    on_data_loss: str = _key("on.data.loss")
    errors_tolerance: str = _key("errors.tolerance")
    errors_retry_timeout_ms: int = _key("errors.retry.timeout")
    errors_retry_delay_max_ms: int = _key("errors.retry.delay.max.ms")
    dead_letter_topic: str | None = _key("errors.deadletterqueue.topic.name")
    dead_letter_replication_factor: int = _key("errors.deadletterqueue.topic.replication.factor")
    dead_letter_context_headers: bool = _key("errors.deadletterqueue.context.headers.enable")
    restart_backoff_initial_ms: int = _key("restart.backoff.initial.ms")
    restart_backoff_max_ms: int = _key("restart.backoff.max.ms")
    consumer_override: dict[str, str] = _family("consumer.override.")
    producer_override: dict[str, str] = _family("producer.override.")
    admin_override: dict[str, str] = _family("admin.override.")
    given: dict[str, str] = Field(repr=False)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: Any) -> dict[str, Any]:
        given, faults = as_texts(raw)
        parsed = parse(SCHEMA, given).without(faults)
        found = (*faults, *parsed.faults, *rules.check(parsed.values | parsed.families), *_client_faults(parsed))
        if found:
            raise FaultyConfigError(f'connector "{given.get("name", "")}"', found)
        return {**parsed.values, **parsed.families, "given": given}

    @property
    def group_id(self) -> str:
        """The consumer group that shows the connector's progress, named as Kafka Connect names it."""
        return f"connect-{self.name}"

    @property
    def policy(self) -> CompactionPolicy:
        """How the connector's logs are kept."""
        return CompactionPolicy(
            cleanup_policy=tuple(sorted(self.cleanup_policy)),
            min_cleanable_dirty_ratio=self.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            max_compaction_lag_ms=self.max_compaction_lag_ms,
            delete_retention_ms=self.delete_retention_ms,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            segment_bytes=self.segment_bytes,
        )

    @property
    def fold(self) -> FoldPolicy:
        """When the connector's runs are rewritten."""
        return FoldPolicy(
            level0_files=self.fold_level0_files,
            tier_runs=self.fold_tier_runs,
            run_max_bytes=self.fold_run_max_bytes,
            full_interval_ms=self.fold_full_interval_ms,
        )

    @property
    def publishes(self) -> bool:
        """False with `output.topic=none`."""
        return self.output_topic_template != "none"

    @property
    def snapshot_path(self) -> Path | None:
        """The folder of `snapshot.location`; None where there are no snapshots."""
        return local_path(self.snapshot_location) if self.snapshot_location else None

    def output_topic(self, topic: str) -> str | None:
        """The output topic of the source topic `topic`; None where nothing is published."""
        return rules.output_name(self.output_topic_template, topic)

    def transactional_id(self, bucket: int) -> str:
        """The transactional id of bucket `bucket`."""
        return f"{self.name}-{bucket}"

    def effective(self) -> dict[str, str | None]:
        """All settings as texts, defaults included, as they may be printed: secrets hidden."""
        return effective(CONNECTOR_KEYS, masked(self.given))


def _client_faults(parsed: Parsed) -> tuple[Fault, ...]:
    return tuple(
        Fault(prefix + fault.key, fault.text)
        for prefix, kind in _OVERRIDES.items()
        for fault in client_names.name_faults(kind, parsed.families[prefix])
    )


def with_settings(config: ConnectorConfig, changes: Mapping[str, object]) -> ConnectorConfig:
    """`config` with some settings of its file changed, checked anew; raises ConfigError as a file would."""
    return ConnectorConfig.model_validate({**config.given, **changes})
