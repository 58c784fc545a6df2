"""The connector file as a value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Annotated, Any, Final, Literal, Self

from msgspec.structs import replace
from pydantic import (
    ConfigDict,
    Field,
    InstanceOf,
    ModelWrapValidatorHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)

from connectors.chain.fill_settings import UNAVAILABLE
from connectors.chain.routing import has_routers, only_routers, output_of, outputs_of
from connectors.chain.spec import ChainSpec, chain_faults, chain_spec
from connectors.config import flat_file, rules
from connectors.config.clients.client_translate import name_faults
from connectors.config.definitions import family, from_placeholders, setting
from connectors.config.errors import Fault, SeveralFaultsError
from connectors.config.fields import (
    ANY_CASE,
    WORDS,
    Allowed,
    ConnectorClass,
    ConnectorName,
    Filling,
    Flag,
    Identity,
    Int,
    Long,
    LongOrUnlimited,
    Order,
    OutputTopic,
    Ratio,
    Short,
    Tasks,
    Text,
    TopicNames,
    TopicPatterns,
    TopicRegex,
    WrittenTopic,
    limits_of,
    or_minus_one,
)
from connectors.config.flat_file import check_size, family_texts
from connectors.config.secrets import masked
from connectors.config.snapshots import SnapshotConfig
from connectors.config.table_rules import iceberg_table
from connectors.placeholders import UNLIMITED, Limits, resolve

ClassSettings = Annotated[dict[str, str], family_texts(lambda _: ())]
"""Settings of a converter, a transform or a predicate, which `chain_faults` checks."""
_connector: Final = partial(setting, group="The connector and its topics")
_output: Final = partial(setting, group="The output topic")
_compaction: Final = partial(setting, group="Compaction (Kafka's topic settings)")
_fold: Final = partial(setting, group="Folding")
_converters: Final = partial(setting, group="Converters, transforms and predicates")
_pace: Final = partial(setting, group="Pace, and what to do when the source has lost records")
_errors: Final = partial(setting, group="Errors")


@flat_file.model_of("connector")
class ConnectorConfig(SnapshotConfig):
    """Every setting of one connector, checked. Times in ms, sizes in bytes; None if nothing is set.

    `ConnectorConfig.model_validate(mapping)` takes the flat mapping of a connector file (texts, numbers, booleans)
    and raises ConfigError with all of its faults. `given` is that mapping as texts, placeholders unresolved:
    validating it again gives an equal value. The three overrides hold placeholders until a client is made. `limits`,
    the context of the validation, say what placeholders may read.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)

    name: ConnectorName = _connector("name", ..., importance="high")
    """The connector's name. It is also the name of its folder, of its consumer group (`connect-<name>`) and the
    beginning of its transactional ids. Renaming a connector makes a new one."""
    connector_class: ConnectorClass = _connector("connector.class", ..., importance="high")
    """What the connector is; there is one class."""
    topics: TopicNames | None = _connector("topics", None, importance="high")
    """The source topics. Either this or `topics.regex`."""
    topics_regex: TopicRegex | None = _connector("topics.regex", None, importance="high")
    """Source topics by pattern: a Java regular expression that must match the whole name. New topics join while the
    connector runs.

    keyfold's own output and dead letter topics and topics that begin with `__` never match."""
    topics_exclude: TopicPatterns | None = _connector("topics.exclude", None, importance="medium")
    """Topics that `topics.regex` leaves out: names or patterns of whole names, with commas between them, at most 50
    ([operating.md](operating.md#the-tables-of-a-database)). MirrorMaker's setting of this name is the same."""
    tasks_max: Tasks | None = _connector("tasks.max", None, ge=1, importance="high")
    """Upper bound of publishing tasks, and of tasks that read for this connector alone; at most 10000.

    Small portions that connectors read together have up to as many tasks as Spark has cores. Not set: the number of
    Spark's cores, divided by the number of the worker's connectors, at least 1."""
    output_topic_template: OutputTopic = _output("output.topic", "${topic}.compacted", importance="high")
    """Where the compacted changelog goes; `${topic}` stands for the source topic's name. A fixed name is allowed for a
    single source topic. `none` publishes nothing: only snapshots are made."""
    output_topic_replication_factor: Annotated[Short, or_minus_one("the broker's default", least=1)] = _output(
        "output.topic.replication.factor", "-1", importance="medium"
    )
    """Replication factor of an output topic that keyfold creates."""
    output_source_headers_enable: Flag = _output("output.source.headers.enable", "true", importance="low")
    """Add `keyfold.source.topic`, `keyfold.source.partition` and `keyfold.source.offset` to each record on the
    output."""
    publish_unchanged: Annotated[Literal["send", "skip"], ANY_CASE] = _output(
        "publish.unchanged", "send", importance="medium"
    )
    """Whether a record with the value and headers of the one that the output has of its key is sent: `send` or `skip`.

    What is skipped is counted, kept in the log, and in snapshots. The output then has the earlier record, with its
    offset and time. `skip` needs an index of keys, which it has written, and goes with `cleanup.policy=compact` alone.
    A record is sent if it is not known that the output has an equal one
    ([protocol.md](protocol.md#records-that-change-nothing))."""
    cleanup_policy: Annotated[
        frozenset[Literal["compact", "delete"]],
        WORDS,
        Allowed("compact, delete, or both with a comma between them", "LIST"),
    ] = _compaction("cleanup.policy", "compact", importance="medium")
    """`compact` keeps the last record of each key; `delete` also removes what is older than `retention.ms` or beyond
    `retention.bytes`."""
    min_cleanable_dirty_ratio: Ratio = _compaction("min.cleanable.dirty.ratio", "0.5", importance="medium")
    """A log is fully folded when the share of its bytes that are not yet folded is greater than this."""
    min_compaction_lag_ms: Long = _compaction("min.compaction.lag.ms", "0", ge=0, unit="ms", importance="medium")
    """A record younger than this is not folded. **As the output carries only what may be folded, this is also how long
    a record waits before it is published.**"""
    max_compaction_lag_ms: Long = _compaction(
        "max.compaction.lag.ms", "9223372036854775807", ge=1, unit="ms", importance="medium"
    )
    """A record older than this is folded whatever the dirty ratio. Not less than `min.compaction.lag.ms`."""
    delete_retention_ms: Long = _compaction("delete.retention.ms", "86400000", ge=0, unit="ms", importance="medium")
    """How long a tombstone is kept after the first full fold that meets it."""
    key_identity: Identity = _compaction("compaction.key.identity", "bytes", importance="medium")
    """By what two keys are compared: their bytes, the JSON value that they hold, or the value of a registry's Avro.
    `resync` applies another one ([converters.md](converters.md#key-identity))."""
    scope: Annotated[Literal["partition", "topic"], ANY_CASE] = _compaction(
        "compaction.scope", "partition", importance="medium"
    )
    """Whether a key has one winner in each partition, or one over all partitions of a topic, by time
    ([semantics.md](semantics.md#one-winner-over-a-topic)). `resync` applies another one."""
    order: Order = _compaction("compaction.order", "offset", importance="medium")
    """Which record of a key wins ([semantics.md](semantics.md#another-order)). `resync` applies another one."""
    fill: Filling = _compaction("compaction.fill", "none", importance="medium")
    """`unavailable`: fields that hold Debezium's placeholder are taken from the record before it of the same key, by an
    index of keys ([semantics.md](semantics.md#values-that-are-filled)). `resync` applies another one."""
    unavailable: Text = _compaction("unavailable.value.placeholder", UNAVAILABLE, importance="low")
    """Debezium's setting of this name, for `compaction.fill`; hexadecimal digits follow `hex:`."""
    retention_ms: Annotated[Long, or_minus_one("no limit")] = _compaction(
        "retention.ms", "-1", unit="ms", importance="medium"
    )
    """Age at which records are removed if `cleanup.policy` has `delete`."""
    retention_bytes: Annotated[Long, or_minus_one("no limit")] = _compaction(
        "retention.bytes", "-1", unit="bytes", importance="medium"
    )
    """Bytes per partition beyond which the oldest records are removed if `cleanup.policy` has `delete`."""
    segment_bytes: Int = _compaction("segment.bytes", "134217728", ge=1024, unit="bytes", importance="medium")
    """Size at which a file of a run ends and the next begins.

    No file has an index file of its own, so it may be smaller than the 1 MiB that Kafka 4 asks for. Under 1 KiB there
    would be a file for nearly each record."""
    fold_level0_files: Int = _fold("fold.level0.files", "32", ge=2, importance="low")
    """This many level-0 runs of a log are folded into one run of level 1."""
    fold_tier_runs: Int = _fold("fold.tier.runs", "10", ge=2, importance="low")
    """This many neighbouring runs of a similar size are folded into one."""
    fold_run_max_bytes: Long = _fold("fold.run.max.bytes", "137438953472", ge=1, unit="bytes", importance="low")
    """A run larger than this is rewritten by full folds only."""
    fold_full_interval_ms: Long = _fold("fold.full.interval.ms", "86400000", ge=1, unit="ms", importance="medium")
    """After this time a log with anything to fold is fully folded."""
    fold_io_max_bytes_per_second: LongOrUnlimited = _fold(
        "fold.io.max.bytes.per.second", "unlimited", unit="bytes/s", importance="medium"
    )
    """Upper bound of what folds read and write together."""
    fold_local_max_records: Annotated[Long, or_minus_one("everything is rewritten by Spark's tasks")] = _fold(
        "fold.local.max.records", "100000", unit="records", importance="low"
    )
    """A clean or merge of logs with at most so many records and 64 MiB together is done by the worker's own process,
    without a Spark job.

    Larger ones are done by Spark's tasks, as are those with `fold.io.max.bytes.per.second`, of a connector that does
    not compact, or with a damaged file."""
    state_index: Annotated[Literal["auto", "always", "never"], ANY_CASE] = _fold(
        "state.index", "auto", importance="low"
    )
    """Whether the files of the state get an index of their keys, so that `keyfold get` need not read all keys.

    `auto`: if `publish.unchanged`, `compaction.key.identity` or another `compaction.…` setting needs it. With an
    index, files that have none get one by the next full fold of their partition."""
    bootstrap_fold_enable: Flag = _fold("bootstrap.fold.enable", "true", importance="medium")
    """Fold the backlog that a new topic has before anything of it is published, so that a reader of a fresh output
    topic gets each key once."""
    max_offsets_per_trigger: LongOrUnlimited = _pace(
        "max.offsets.per.trigger", "unlimited", unit="offsets", importance="medium"
    )
    """Upper bound of offsets that one micro-batch takes, over all topics of the connector."""
    trigger_interval_ms: Long = _pace("trigger.interval.ms", "0", ge=0, unit="ms", importance="medium")
    """Shortest time between the beginnings of two micro-batches. Not set, on an object store: 500."""
    publish_local_max_records: Annotated[Long, or_minus_one("everything is published by Spark's tasks")] = _pace(
        "publish.local.max.records", "250000", unit="records", importance="low"
    )
    """A publish of up to so many records (and 64 MiB) is folded and sent by the worker's own process, without a Spark
    job; a larger one by Spark's tasks."""
    on_data_loss: Annotated[Literal["fail", "skip"], ANY_CASE] = _pace("on.data.loss", "fail", importance="medium")
    """What to do if the source has lost records before they were read: `fail` sets the topic aside, `skip` counts the
    records and goes on after them.

    With `fail`, a connector that has no other topic is FAILED."""
    key_converter: Text | None = _converters("key.converter", None, importance="medium")
    """The class that reads keys, and writes them unless there is `output.key.converter`
    ([converters.md](converters.md)). Not set: the worker's, else `keyfold.Bytes`.

    Keys are only converted if a transform or predicate looks at them or changes them, or the output has another
    converter."""
    value_converter: Text | None = _converters("value.converter", None, importance="medium")
    """The class that reads values, and writes them unless there is `output.value.converter`. Not set: the worker's,
    else `keyfold.Bytes`."""
    output_key_converter: Text | None = _converters("output.key.converter", None, importance="medium")
    """The class that writes keys, if that is not the one that reads them
    ([converters.md](converters.md#output-converters)). Not set: a key keeps its form, and its bytes if nothing changes
    it.

    Every key is then kept and published as this class writes it. What was kept before stays as it is, so set it before
    the first start, or `keyfold resync` afterwards."""
    output_value_converter: Text | None = _converters("output.value.converter", None, importance="medium")
    """The class that writes values, if that is not the one that reads them. Not set: a value keeps its form."""
    header_converter: Text | None = _converters("header.converter", None, importance="low")
    """The class that writes headers which a transform adds. Not set: the worker's, else Connect's
    SimpleHeaderConverter. Headers of the source are never changed by it."""
    transforms: Text | None = _converters("transforms", None, importance="medium")
    """Aliases of the transforms that every record goes through before it is folded, in their order, with commas
    between them ([transforms.md](transforms.md))."""
    predicates: Text | None = _converters("predicates", None, importance="medium")
    """Aliases of the predicates that transforms name."""
    debezium_truncate: Annotated[Literal["warn", "fail", "apply"], ANY_CASE] = _converters(
        "debezium.truncate", "warn", importance="medium"
    )
    """What becomes of a truncate that `ExtractNewRecordState` meets: `warn` drops it, `fail` refuses it as a bad
    record, `apply` deletes the rows that it has left ([cdc.md](cdc.md#truncate))."""
    errors_tolerance: Annotated[Literal["none", "all"], ANY_CASE] = _errors(
        "errors.tolerance", "none", importance="medium"
    )
    """A record that cannot be taken (it has no key, or the broker refuses it): `none` makes the connector FAILED, `all`
    counts it and lets it go."""
    errors_scope: Annotated[Literal["connector", "topic"], ANY_CASE] = _errors(
        "errors.scope", "connector", importance="medium"
    )
    """What such a record stops with `errors.tolerance=none`: the `connector`, or the record's `topic` alone
    ([errors.md](errors.md#one-topic-alone))."""
    errors_retry_timeout_ms: Annotated[Long, or_minus_one("for ever")] = _errors(
        "errors.retry.timeout", "0", unit="ms", importance="medium"
    )
    """For how long a running connector repeats what the brokers did not answer: questions about topics and positions,
    transactions that were not committed.

    The first wait is 300 ms, each next one twice as long. After that, and at once with 0, the connector is started
    again (`restart.backoff.*`). A schema registry is asked up to four times within 5 s, whatever this says. No
    converter or transform is tried again."""
    errors_retry_delay_max_ms: Long = _errors(
        "errors.retry.delay.max.ms", "60000", ge=1, unit="ms", importance="medium"
    )
    """Longest wait between two such tries."""
    errors_log_enable: Flag = _errors("errors.log.enable", "false", importance="medium")
    """Log each record that is let go, in one line with the stage and the class that refused it."""
    errors_log_include_messages: Flag = _errors("errors.log.include.messages", "false", importance="medium")
    """Let that line say which record it was: topic, partition, offset and timestamp. The reason in that line may
    quote a part of a value."""
    dead_letter_topic: WrittenTopic | None = _errors("errors.deadletterqueue.topic.name", None, importance="medium")
    """Topic to which records go that `errors.tolerance=all` lets go. Not set: they are only counted. If keyfold makes
    it, it has `message.timestamp.type=LogAppendTime`, so that letters age from their arrival."""
    dead_letter_replication_factor: Annotated[Short, or_minus_one("the broker's default", least=1)] = _errors(
        "errors.deadletterqueue.topic.replication.factor", "3", importance="medium"
    )
    """Replication factor of a dead letter topic that keyfold creates (with 1 partition)."""
    dead_letter_context_headers: Flag = _errors(
        "errors.deadletterqueue.context.headers.enable", "false", importance="low"
    )
    """Add Connect's `__connect.errors.*` headers to dead letters."""
    restart_backoff_initial_ms: Long = _errors(
        "restart.backoff.initial.ms", "1000", ge=1, unit="ms", importance="medium"
    )
    """First wait before a connector that failed is started again. The wait doubles each time.

    It is back at this value once the connector has worked: ingested a micro-batch and published it, or had nothing to
    do for 10 s. Brokers or a store that did not answer are asked every 2 s meanwhile, and end the wait when they
    do."""
    restart_backoff_max_ms: Long = _errors("restart.backoff.max.ms", "300000", ge=1, unit="ms", importance="medium")
    """Longest such wait."""
    limits: InstanceOf[Limits] = Field(UNLIMITED, repr=False)
    given: dict[str, str] = Field(repr=False)
    output_topic_config: Annotated[dict[str, str], family_texts(rules.topic_settings, are_shown=True)] = family(
        "output.topic.config."
    )
    """A topic setting for output topics that keyfold creates, under Kafka's name:
    `output.topic.config.min.insync.replicas`."""
    key_converter_settings: ClassSettings = family("key.converter.")
    """A setting of `key.converter`: `key.converter.schemas.enable`."""
    value_converter_settings: ClassSettings = family("value.converter.")
    """A setting of `value.converter`."""
    output_key_converter_settings: ClassSettings = family("output.key.converter.")
    """A setting of `output.key.converter`."""
    output_value_converter_settings: ClassSettings = family("output.value.converter.")
    """A setting of `output.value.converter`: `output.value.converter.schema.registry.url`."""
    header_converter_settings: ClassSettings = family("header.converter.")
    """A setting of `header.converter`."""
    transform_settings: ClassSettings = family("transforms.")
    """A setting of a transform, by its alias: `transforms.ALIAS.type`, `.predicate`, `.negate`, and its own."""
    predicate_settings: ClassSettings = family("predicates.")
    """A setting of a predicate, by its alias: `predicates.ALIAS.type`, and its own."""
    consumer_override: Annotated[dict[str, str], family_texts(partial(name_faults, "consumer"))] = family(
        "consumer.override."
    )
    """A setting of this connector's consumers, under Java's or librdkafka's name; wins over the worker's
    `consumer.`."""
    producer_override: Annotated[dict[str, str], family_texts(partial(name_faults, "producer"))] = family(
        "producer.override."
    )
    """The same for its producers."""
    admin_override: Annotated[dict[str, str], family_texts(partial(name_faults, "admin"))] = family("admin.override.")
    """The same for its admin clients."""

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, raw: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        def subject(given: Mapping[str, str]) -> str:
            return f'connector "{given.get("name", "")[:250]}"'

        if isinstance(raw, Mapping):
            texts, _ = flat_file.texts_of(raw)
            check_size(texts, subject(texts))
        clients = "consumer.override.{0}, producer.override.{0} or admin.override.{0}"
        return flat_file.read(cls, raw, handler, subject, clients, {"limits": limits_of(info)})

    @field_validator("given")
    @classmethod
    def _fit_together(cls, given: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        """Runs the rules over several settings; `info.data` lacks those that have a fault of their own."""
        limits = limits_of(info)
        values, chain = {**info.data, "limits": limits}, chain_faults(given, resolve, limits)
        if not chain and {"topics", "output_topic_template"} <= values.keys():
            spec = replace(chain_spec(given, limits=limits), output=values["output_topic_template"])
            outputs, chain = outputs_of(spec, values["topics"], resolve)
            values |= {} if chain else {"outputs": outputs, "written_value": spec.written_value}
        if faults := (
            *rules.check(values, from_placeholders(ConnectorConfig, given)),
            *(Fault(*fault) for fault in chain),
        ):
            raise SeveralFaultsError(faults)
        return given

    @property
    def group_id(self) -> str:
        """The consumer group that shows the connector's progress, named as Kafka Connect names it."""
        return f"connect-{self.name}"

    @property
    def redrive_group_id(self) -> str:
        """The group that says which dead letters were sent back; no connector's, as those begin with `connect-`."""
        return f"keyfold-dlq-{self.name}"

    @property
    def redrive_transactional_id(self) -> str:
        """The transactional id with which dead letters are sent back; those of publishing end with a number."""
        return f"{self.name}-dlq"

    @property
    def publishes(self) -> bool:
        """False with `output.topic=none`."""
        return self.output_topic_template != "none"

    def output_topic(self, topic: str) -> str | None:
        """Returns the output topic of the source topic `topic`, None if nothing is published. Raises PatternError."""
        return output_of(self._own_routers, topic, resolve)

    @cached_property
    def named_outputs(self) -> dict[str, str]:
        """The output topic of each topic that `topics` names, with that topic. Raises PatternError."""
        outputs = ((self.output_topic(topic), topic) for topic in self.topics or ())
        return {output: topic for output, topic in outputs if output is not None}

    def iceberg_table(self, topic: str) -> tuple[str, ...]:
        """Returns the namespace and the name of the Iceberg table of the source topic `topic`."""
        return iceberg_table(self.name, self.snapshot_table_name, topic)

    @cached_property
    def iceberg_tables(self) -> dict[tuple[str, ...], str]:
        """The Iceberg table of each topic that `topics` names, with that topic."""
        return {self.iceberg_table(topic): topic for topic in self.topics or ()}

    @cached_property
    def source_names(self) -> frozenset[str]:
        """The topics that `topics` names; none of a pattern."""
        return frozenset(self.topics or ())

    @cached_property
    def shown(self) -> dict[str, str]:
        """The settings as REST shows them, secrets hidden: to find these in 256 KiB of settings takes 0.1 s."""
        return masked(self.given)

    @property
    def routes(self) -> bool:
        """Whether a transform says to which topic the records of a source topic go."""
        return has_routers(self._own_routers)

    @cached_property
    def _own_routers(self) -> ChainSpec:
        return only_routers(self.chain_spec())

    def chain_spec(self, worker: Mapping[str, str] | None = None) -> ChainSpec:
        """Returns what is done with each record; `worker` has the worker's settings, for its converters."""
        return replace(chain_spec(self.given, worker, self.limits), output=self.output_topic_template)

    def transactional_id(self, bucket: int) -> str:
        """Returns the transactional id of bucket `bucket`."""
        return f"{self.name}-{bucket}"

    def effective(self) -> dict[str, str | None]:
        """Returns all settings as texts, defaults included, as they may be printed: secrets hidden."""
        return flat_file.effective(type(self), self.given)


def with_settings(config: ConnectorConfig, changes: Mapping[str, object]) -> ConnectorConfig:
    """Changes some settings of the file of `config` and checks it again; raises ConfigError as a file would."""
    return ConnectorConfig.model_validate({**config.given, **changes}, context=config.limits)
