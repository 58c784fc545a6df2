"""Warns of what a connector would do with what its topics hold, though each setting is right: `keyfold validate`.

A topic is known by a few of its records, if brokers are asked: change events of Debezium, what keyfold publishes, dead
letters. Nothing here is an error, as each may be meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct

from connectors.chain.spec import ChainSpec, Resolve, made_converter, options_of
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.files import OtherFile
from connectors.config.selection import is_source
from connectors.converters.converter import Converter
from connectors.converters.names import CONVERTERS
from connectors.converters.registered import RegisteredConverter
from connectors.data.record import Header
from connectors.data.unwrapping import ENVELOPE
from connectors.errors import ConfigError
from connectors.operations.topic_samples import Sample
from connectors.registry.patience import Patience
from connectors.sinks.dead_letter import PREFIX
from connectors.sinks.encode import TOPIC
from connectors.transforms.names import TRANSFORMS

_UNWRAP: Final = frozenset({"ExtractNewRecordState", "ExtractNewDocumentState"})
_JSON: Final = "keyfold.Json"
_CHANGE: Final = frozenset({"op", "source"})
"""Fields of every change event; the row is in `before` or `after`, of MongoDB also in `updateDescription`."""
_OWN: Final = "io.debezium.connector.common."
"""How the names of Debezium's schemas of heartbeats and transactions begin."""
_TRANSACTION: Final = frozenset({"status", "id", "event_count", "data_collections"})
_SCHEMA_CHANGE: Final = frozenset({"source", "databaseName", "ddl"})
_SHOWN: Final = 3
"""Topics that a warning names: those of one kind are many if there are any."""
_LONGEST: Final = 1 << 20
"""Bytes of JSON that are looked into; a change event has a few thousand."""
_WAIT_S: Final = 5.0
"""How long the schema registry is waited for in all; without its answer nothing is said of a topic."""


class Holds(Enum):
    """What a topic holds, as a warning says it."""

    LETTERS = "dead letters"
    OUTPUT = f"what keyfold publishes (the header {TOPIC} says so)"
    DEBEZIUMS = "what Debezium writes of itself (heartbeats, transactions, changes of schemas), and no rows"
    CHANGES = "change events of Debezium"


class Shape(Struct, frozen=True):
    """The struct that a value is: the name of its schema, the names of its fields; `has_schema`: it came with one."""

    name: str | None
    fields: frozenset[str]
    has_schema: bool

    @property
    def holds(self) -> Holds | None:
        """What a topic of such values holds; None: nothing that is known."""
        name = self.name or ""
        if name.startswith(_OWN) or name.endswith("SchemaChangeValue"):
            return Holds.DEBEZIUMS
        if name.endswith(ENVELOPE) or (self.fields >= _CHANGE and self.fields & {"before", "after"}):
            return Holds.CHANGES
        is_own = self.fields >= _TRANSACTION or self.fields >= _SCHEMA_CHANGE
        return Holds.DEBEZIUMS if is_own else None


def advice(
    config: ConnectorConfig,
    spec: ChainSpec,
    resolve: Resolve,
    others: Iterable[OtherFile],
    samples: Mapping[str, Sequence[Sample]],
) -> Iterator[Fault]:
    """Yields the warnings for a connector with the chain `spec`: a setting each, and what it leads to.

    `others` are the connector files that are checked with it, `samples` the newest records of its topics, none if no
    broker is asked.
    """
    if config.topics_regex is not None:
        yield from _of_others(config, others)
    yield from _no_table(config, spec)
    with suppress(ConfigError, ValueError):  # a fault of the file, which is told
        converter = made_converter(spec.value, resolve, is_key=False)
        converter.wait_with(Patience(wait_s=_WAIT_S))
        try:
            shapes = {topic: shape for topic in samples if (shape := _shape_of(samples[topic], converter))}
        finally:
            converter.close()
        holds = {topic: of for topic in samples if (of := _holds(samples[topic][-1], shapes.get(topic)))}
        if config.topics_regex is not None:
            yield from _taken_in(holds)
        yield from _not_unwrapped(spec, holds, resolve)
        yield from _other_schemas(spec, shapes, resolve)


def _no_table(config: ConnectorConfig, spec: ChainSpec) -> Iterator[Fault]:
    """Yields the settings of typed snapshots by which there are no columns to ask for by name."""
    written = {"key": spec.written_key, "value": spec.written_value}
    given = {"key": config.snapshot_key_format, "value": config.format_of_values}
    for side in (side for side in given if given[side] == "typed" and written[side].is_bytes):
        is_said = side == "key" or config.snapshot_value_format is not None
        yield Fault(
            f"snapshot.{side}.format" if is_said else config.typed_by,
            f"{'typed' if is_said else 'it'} makes one column of bytes: no converter reads the {side}s. "
            f"Set {side}.converter, as keyfold.Json.",
        )
    if given["key"] == "typed" and "_key" not in config.snapshot_metadata_columns:
        yield Fault("snapshot.key.format", "typed makes no column: snapshot.metadata.columns lacks _key. Add it there.")


def _of_others(config: ConnectorConfig, others: Iterable[OtherFile]) -> Iterator[Fault]:
    for other in others:
        if other.config is None:
            continue
        names = [*other.config.named_outputs, *filter(None, [other.config.dead_letter_topic])]
        if taken := [name for name in names if is_source(config, name)]:
            text = f'takes in {listed(taken)}, to which connector "{other.name}" in {other.path} writes'
            yield Fault("topics.regex", f"{text}. {_LEAVE_OUT}")


_LEAVE_OUT: Final = "Leave such topics out with topics.exclude, unless they are meant."


def _taken_in(holds: Mapping[str, Holds]) -> Iterator[Fault]:
    for kind in (Holds.LETTERS, Holds.OUTPUT, Holds.DEBEZIUMS):
        if taken := _of_kind(holds, kind):
            yield Fault("topics.regex", f"takes in {listed(taken)}: {kind.value}. {_LEAVE_OUT}")


def _not_unwrapped(spec: ChainSpec, holds: Mapping[str, Holds], resolve: Resolve) -> Iterator[Fault]:
    if _unwraps(spec):
        return
    where = listed(taken) if (taken := _of_kind(holds, Holds.CHANGES)) else ""
    if not where and (_declared(spec, resolve) or "").endswith(ENVELOPE):
        where = "each topic (value.converter.schema.content says so)"
    if where:
        yield Fault(
            "transforms",
            f"none takes the rows out of {Holds.CHANGES.value} in {where}: kept is the last event of each key. Add "
            "transforms=row and transforms.row.type=io.debezium.transforms.ExtractNewRecordState (of MongoDB: "
            "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState), unless events are meant.",
        )


def _other_schemas(spec: ChainSpec, shapes: Mapping[str, Shape], resolve: Resolve) -> Iterator[Fault]:
    """Yields a fault for JSON that the converter of values takes for another form, if anything looks at values."""
    looks = _unwraps(spec) or spec.output_value is not None
    if not looks or CONVERTERS.find(spec.value.name).of.java != _JSON:
        return
    options, key = options_of(spec.value, CONVERTERS, resolve), "value.converter.schemas.enable"
    with_schema = [topic for topic, shape in shapes.items() if shape.has_schema]
    without = [topic for topic, shape in shapes.items() if not shape.has_schema]
    if with_schema and (not options["schemas.enable"] or options["schema.content"]):
        said = "is false" if not options["schemas.enable"] else "comes with schema.content"
        yield Fault(key, f"{said}, and {listed(with_schema)}: each message has its schema. Set it to true, alone.")
    if without and options["schemas.enable"] and not options["schema.content"]:
        yield Fault(
            key,
            f"is true, and {listed(without)}: messages have no schema, so that every record would be refused. Have "
            "Debezium write them (value.converter.schemas.enable=true there, or Avro), or say the schema in "
            "value.converter.schema.content.",
        )


def _unwraps(spec: ChainSpec) -> bool:
    return any(TRANSFORMS.find(step.of.name).of.simple in _UNWRAP for step in spec.steps)


def _declared(spec: ChainSpec, resolve: Resolve) -> str | None:
    """Returns the name of the schema that the settings of JSON values say; None if they say none."""
    if CONVERTERS.find(spec.value.name).of.java != _JSON:
        return None
    content = options_of(spec.value, CONVERTERS, resolve)["schema.content"]
    node = _json(content.encode()) if content else None
    return _text(node.get("name")) if isinstance(node, dict) else None


def _of_kind(holds: Mapping[str, Holds], kind: Holds) -> list[str]:
    return [topic for topic, of in holds.items() if of is kind]


def listed(topics: Sequence[str]) -> str:
    """Returns the names of some of `topics`, and how many there are besides."""
    names = ", ".join(f'"{topic}"' for topic in sorted(topics)[:_SHOWN])
    return names if len(topics) <= _SHOWN else f"{names} and {len(topics) - _SHOWN} more"


def _holds(newest: Sample, shape: Shape | None) -> Holds | None:
    names = {name for name, _ in newest.headers}
    if f"{PREFIX}topic" in names:
        return Holds.LETTERS
    if TOPIC in names:
        return Holds.OUTPUT
    return shape.holds if shape is not None else None


def _shape_of(samples: Sequence[Sample], converter: Converter) -> Shape | None:
    """Returns the shape of the newest of `samples` that has one: as JSON, or as a schema registry says it."""
    values = (sample for sample in reversed(samples) if sample.value is not None)
    shapes = (_shape_in_json(each.value or b"") or _shape_by_registry(each, converter) for each in values)
    return next((shape for shape in shapes if shape is not None), None)


def _shape_in_json(value: bytes) -> Shape | None:
    node = _json(value)
    if not isinstance(node, dict):
        return None
    if node.keys() != {"schema", "payload"}:
        return Shape(None, frozenset(node), has_schema=False)
    schema = node["schema"] if isinstance(node["schema"], dict) else {}
    fields = node["payload"] if isinstance(node["payload"], dict) else {}
    return Shape(_text(schema.get("name")), frozenset(fields), has_schema=True)


def _shape_by_registry(sample: Sample, converter: Converter) -> Shape | None:
    if not isinstance(converter, RegisteredConverter) or len(sample.value or b"") > _LONGEST:
        return None
    try:
        schema, _ = converter.to_connect_data("", [Header(*each) for each in sample.headers], sample.value)
    except Exception:  # noqa: BLE001  # a record or a registry may hold anything: nothing is known of the topic then
        return None
    fields = schema.fields if schema is not None else ()
    return Shape(schema.name if schema else None, frozenset(field.name for field in fields), has_schema=True)


def _json(value: bytes) -> Any:
    """Returns what JSON says; None for anything else, and for more than is looked into."""
    if len(value) > _LONGEST:
        return None
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.json.decode(value)
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
