"""The options of the source, parsed once from Spark's strings.

| option | meaning | default |
|---|---|---|
| connector | name, for messages | keyfold |
| consumer.config | JSON object, complete: ClientSettings.consumer(); may hold secrets | required |
| admin.config | the same of the admin client: ClientSettings.admin() | required |
| topics | JSON list of names; this or topics.regex | |
| topics.regex | Java's pattern for the whole name; internal topics never match | |
| exclude | JSON list of names that topics.regex does not match | [] |
| output.topic | template of the outputs, which topics.regex does not match either | none |
| starts | JSON `{"topic": {"id": "…", "partitions": {"0": 57}}}`: where known topics begin | {} |
| closed | JSON list of the topics in `starts` that were gone before: they are not waited for | [] |
| max.offsets.per.trigger | offsets that a micro-batch takes at most | unlimited |
| tasks.max | reading tasks of a batch at most | 2 |
| batch.bytes | bytes of key, value and headers in an Arrow batch, at most (one record is never cut) | 16 MiB |
| on.data.loss | fail or skip | fail |
| intake | `encode_intake`: records go into files where they are read, rows report what was written | none |
| read.timeout.ms | without progress for so long, a read or a plan fails | 60000 |
| metadata.max.age.ms | topics, partitions and ids are asked for again after it | 5000 |
| poll.interval.ms | an idle source asks for new ends at most this often | 250 |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from compactor.errors import StorageError
from compactor.ingest.ingest import Intake
from compactor.runs.writer import RunTarget
from compactor.storage.local import open_storage
from connectors.config.topics import TopicPattern
from connectors.errors import ConfigError
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.source.offsets import TopicOffsets, decode

_NAMES: Final = frozenset(
    (
        *(
            "connector",
            "consumer.config",
            "admin.config",
            "topics",
            "topics.regex",
            "exclude",
            "output.topic",
            "starts",
            "closed",
        ),
        *("max.offsets.per.trigger", "tasks.max", "batch.bytes", "on.data.loss", "intake"),
        *("read.timeout.ms", "metadata.max.age.ms", "poll.interval.ms"),
    )
)
_REQUEST_S: Final = 10.0


class Selection(msgspec.Struct, frozen=True):
    """Which topics are read: those named, or those that match a pattern."""

    topics: tuple[str, ...] = ()
    pattern: TopicPattern | None = None


class ReadLimits(msgspec.Struct, frozen=True):
    """Upper bounds: offsets of a micro-batch, tasks of a micro-batch, bytes of an Arrow batch."""

    max_offsets: int | None = None
    tasks_max: int = 2
    batch_bytes: int = 16 << 20


class Timeouts(msgspec.Struct, frozen=True):
    """How long to wait, in seconds."""

    timeout: float = 60.0
    metadata_age: float = 5.0
    poll_interval: float = 0.25

    @property
    def request(self) -> float:
        """How long (s) one request to the brokers may take."""
        return min(_REQUEST_S, self.timeout)


class SourceOptions(msgspec.Struct, frozen=True):
    """All options of one source. Its repr shows no client setting.

    `skip_lost`: on.data.loss is `skip`. `intake`: None where records are yielded instead of written.
    """

    connector: str
    clients: ClientSettings
    selection: Selection
    starts: dict[str, TopicOffsets] = {}
    closed: frozenset[str] = frozenset()
    limits: ReadLimits = ReadLimits()
    timeouts: Timeouts = Timeouts()
    skip_lost: bool = False
    intake: Intake | None = None


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parses Spark's strings; raises ConfigError that names the option, without a value that may hold a secret."""
    unknown = sorted(set(options) - _NAMES - {"path"})
    if unknown:
        raise ConfigError(f"Source option {unknown[0]} is not known.", f"Known are: {', '.join(sorted(_NAMES))}.")
    connector = options.get("connector", "keyfold")
    return SourceOptions(
        connector=connector,
        clients=_clients(options),
        selection=_selection(options),
        starts=_starts(options),
        closed=_json(options, "closed", frozenset[str], frozenset()),
        limits=ReadLimits(
            max_offsets=_positive(options, "max.offsets.per.trigger", None),
            tasks_max=_positive(options, "tasks.max", 2) or 2,
            batch_bytes=_positive(options, "batch.bytes", 16 << 20) or 16 << 20,
        ),
        timeouts=_timeouts(options),
        skip_lost=_choice(options, "on.data.loss", ("fail", "skip")) == "skip",
        intake=_intake(options),
    )


def _clients(options: Mapping[str, str]) -> ClientSettings:
    consumer = _client(options, "consumer.config")
    return ClientSettings(_client(options, "admin.config"), consumer)


def _client(options: Mapping[str, str], name: str) -> dict[str, Setting]:
    found: dict[str, Setting] | None = _json(options, name, dict[str, str | int | float | bool], None)
    if found is None:
        raise _wrong(name, "is missing")
    return found


def _selection(options: Mapping[str, str]) -> Selection:
    if ("topics" in options) == ("topics.regex" in options):
        raise _wrong("topics", "and topics.regex: exactly one of the two is needed")
    if "topics" in options:
        return Selection(topics=_json(options, "topics", tuple[str, ...], ()))
    exclude = _json(options, "exclude", frozenset[str], frozenset())
    chosen = TopicPattern(options["topics.regex"], options.get("output.topic", "none"), exclude)
    try:
        chosen.matches("a")
    except ValueError as error:
        raise _wrong("topics.regex", str(error)) from None
    return Selection(pattern=chosen)


def _starts(options: Mapping[str, str]) -> dict[str, TopicOffsets]:
    try:
        return decode(_json(options, "starts", dict[str, Any], {}))
    except msgspec.ValidationError as error:
        raise _wrong("starts", str(error)) from None


def _intake(options: Mapping[str, str]) -> Intake | None:
    try:
        return decode_intake(options["intake"]) if "intake" in options else None
    except (msgspec.DecodeError, StorageError) as error:
        raise _wrong("intake", str(error)) from None


def _timeouts(options: Mapping[str, str]) -> Timeouts:
    return Timeouts(
        timeout=(_positive(options, "read.timeout.ms", 60_000) or 0) / 1000,
        metadata_age=(_positive(options, "metadata.max.age.ms", 5_000) or 0) / 1000,
        poll_interval=(_positive(options, "poll.interval.ms", 250) or 0) / 1000,
    )


def _json(options: Mapping[str, str], name: str, kind: Any, default: Any) -> Any:  # the type is an argument
    if name not in options:
        return default
    try:
        return msgspec.json.decode(options[name], type=kind)
    except msgspec.DecodeError as error:
        raise _wrong(name, str(error)) from None


def _positive(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise _wrong(name, f"is {text!r}, a whole number from 1 up is allowed")
    return int(text)


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, str]) -> str:
    text = options.get(name, allowed[0])
    if text not in allowed:
        raise _wrong(name, f"is {text!r}, allowed is {' or '.join(allowed)}")
    return text


def _wrong(name: str, why: str) -> ConfigError:
    return ConfigError(f"Source option {name} {why}.", "Correct that option.")


class _IntakeText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    location: str
    prefix: str
    max_bytes: int
    keyed: bool
    folds: bool


def encode_intake(intake: Intake) -> str:
    """Writes `intake` as JSON, the storage by its location; it is of no micro-batch yet (`Intake.of_batch`)."""
    target = intake.target
    text = _IntakeText(
        location=target.storage.location,
        prefix=target.prefix,
        max_bytes=target.max_bytes,
        keyed=intake.keyed,
        folds=intake.folds,
    )
    return msgspec.json.encode(text).decode()


def decode_intake(text: str) -> Intake:
    """Reads what `encode_intake` wrote. Raises msgspec.DecodeError, StorageError for a location of an unknown kind."""
    found = msgspec.json.decode(text, type=_IntakeText)
    target = RunTarget(storage=open_storage(found.location), prefix=found.prefix, max_bytes=found.max_bytes)
    return Intake(target=target, keyed=found.keyed, folds=found.folds)
