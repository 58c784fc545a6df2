"""Reads which converters, transforms and predicates a connector has, from its settings and its worker's. Pure.

A `ChainSpec` is what a reading task makes its chain of: names of classes and texts, placeholders unresolved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from connectors.chain.connect_settings import OTHER_NAMES, name_in_file, reason, settled
from connectors.chain.fill_settings import fill_faults
from connectors.chain.hidden_values import values_hidden
from connectors.chain.order_field import order_faults, path_of
from connectors.class_names import ClassNames, Named
from connectors.converters.converter import Converter
from connectors.converters.names import AVRO as AVRO_CONVERTER
from connectors.converters.names import BYTES, CONVERTERS, HEADER_CONVERTERS, SIMPLE
from connectors.data.bounds import MOST_READ
from connectors.errors import ConfigError
from connectors.known_values import remember_setting
from connectors.options import Option, OptionsError, Values, meant, read, unknown
from connectors.placeholders import SHOWN, UNLIMITED, Limits, SecretError, check_path, has_placeholder
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Side, SidedTransform, Step

KEY_CONVERTER: Final = "key.converter"
VALUE_CONVERTER: Final = "value.converter"
OUTPUT_KEY_CONVERTER: Final = "output.key.converter"
OUTPUT_VALUE_CONVERTER: Final = "output.value.converter"
HEADER_CONVERTER: Final = "header.converter"
TRANSFORM_OPTIONS: Final = (
    Option("type", "CLASS", None, "The transform's class.", importance="HIGH"),
    Option("predicate", "STRING", None, "The predicate that says to which records it is applied. Not set: to all."),
    Option("negate", "BOOLEAN", default=False, doc="Apply it to the records of which the predicate is not true."),
)
"""Settings that every transform has in addition to its own."""
PREDICATE_OPTIONS: Final = (Option("type", "CLASS", None, "The predicate's class.", importance="HIGH"),)
_DEFAULTS: Final = {KEY_CONVERTER: BYTES, VALUE_CONVERTER: BYTES, HEADER_CONVERTER: SIMPLE}
_CLASSES: Final = {
    KEY_CONVERTER: CONVERTERS,
    VALUE_CONVERTER: CONVERTERS,
    HEADER_CONVERTER: HEADER_CONVERTERS,
    OUTPUT_KEY_CONVERTER: CONVERTERS,
    OUTPUT_VALUE_CONVERTER: CONVERTERS,
}

ROUTER: Final = "RegexRouter"
OF_TOPICS: Final = "TopicNameMatches"
KEY_IDENTITY: Final = "compaction.key.identity"
BYTES_IDENTITY: Final = "bytes"
TRUNCATE: Final = "debezium.truncate"
_NEEDS_AVRO: Final = (
    "avro needs key.converter in the same file, and keyfold.Avro or another name of it there: what keys are compared "
    "by is fixed at the first start, and a worker's default may change. With output.key.converter that one counts."
)
_NO_JSON: Final = frozenset(
    f"keyfold.{name}"
    for name in ("Avro", "JsonSchema", "Protobuf", "Boolean", "Short", "Integer", "Long", "Float", "Double")
)
"""Converters that never write JSON alone."""
_ONE_OUTPUT: Final = (
    "a log has one output topic, so RegexRouter takes no predicate that looks at single records; TopicNameMatches is "
    "allowed."
)

Resolve = Callable[..., str]
"""Replaces the placeholders in a text; within the limits that follow it, if there are any."""
Fault = tuple[str, str]
"""A setting, and what is wrong with it."""


class ClassSpec(Struct, frozen=True):
    """A class that a file names, as it names it, and the texts of its settings. Its repr shows no setting.

    `limits` are those of the placeholders in its settings.
    """

    name: str
    texts: dict[str, str]
    limits: Limits = UNLIMITED

    @property
    def is_bytes(self) -> bool:
        """Whether it is the converter that neither reads nor writes."""
        return CONVERTERS.find(self.name).of.java == BYTES

    def __repr__(self) -> str:
        return f"ClassSpec({self.name!r})"


class StepSpec(Struct, frozen=True):
    """A transform by its alias, the alias of the predicate that it depends on (None: none), and whether negated."""

    alias: str
    of: ClassSpec
    predicate: str | None = None
    negate: bool = False


class ChainSpec(Struct, frozen=True):
    """What a connector does with each record before it is folded.

    `output_key` and `output_value` write what `key` and `value` read; None: these do. `output` is the template
    `output.topic`, `identity` by what keys are compared, `order_path` names the field of a value that records are
    ordered by, from the outermost on; empty: by none. `fails_truncates`: a truncate is refused as a bad record,
    otherwise dropped; with `applies_truncates` the engine has its rows go. `most_read`: the bytes of a key or value
    that a step looks at.
    """

    key: ClassSpec
    value: ClassSpec
    header: ClassSpec
    output_key: ClassSpec | None = None
    output_value: ClassSpec | None = None
    steps: tuple[StepSpec, ...] = ()
    predicates: dict[str, ClassSpec] = {}
    output: str = "none"
    identity: str = BYTES_IDENTITY
    order_path: tuple[str, ...] = ()
    fails_truncates: bool = False
    applies_truncates: bool = False
    most_read: int = MOST_READ

    @property
    def written_key(self) -> ClassSpec:
        """The converter that writes the keys that are kept and published."""
        return self.output_key or self.key

    @property
    def written_value(self) -> ClassSpec:
        """The converter that writes the values that are kept and published."""
        return self.output_value or self.value


def chain_spec(
    settings: Mapping[str, str], defaults: Mapping[str, str] | None = None, limits: Limits = UNLIMITED
) -> ChainSpec:
    """Reads the chain of a connector with `settings`, in which `defaults`, the worker's, stand for missing converters.

    A converter's own settings come from the file that names its class. Nothing is checked: `chain_faults` does.
    `limits` are those of the connector's placeholders; the worker's have none.
    """
    worker = defaults or {}
    steps = (_step(alias, _of(settings, f"transforms.{alias}."), limits) for alias in _aliases(settings, "transforms"))
    truncate = settings.get(TRUNCATE, "warn").strip().lower()
    predicates = {
        alias: _class(_of(settings, f"predicates.{alias}."), limits) for alias in _aliases(settings, "predicates")
    }
    return ChainSpec(
        key=_converter(KEY_CONVERTER, settings, worker, limits),
        value=_converter(VALUE_CONVERTER, settings, worker, limits),
        header=_converter(HEADER_CONVERTER, settings, worker, limits),
        output_key=_output_converter(OUTPUT_KEY_CONVERTER, settings, limits),
        output_value=_output_converter(OUTPUT_VALUE_CONVERTER, settings, limits),
        steps=tuple(steps),
        predicates=predicates,
        output=settings.get("output.topic", "${topic}.compacted").strip(),
        identity=settings.get(KEY_IDENTITY, BYTES_IDENTITY).strip().lower(),
        order_path=path_of(settings),
        fails_truncates=truncate == "fail",
        applies_truncates=truncate == "apply",
    )


def chain_faults(settings: Mapping[str, str], resolve: Resolve, limits: Limits = UNLIMITED) -> tuple[Fault, ...]:
    """Returns everything that is wrong with what `settings` say of converters, transforms and predicates.

    Classes are made to see whether they take their settings; nothing is asked over the network. `limits` are those of
    the placeholders; no fault shows their values.
    """
    return (
        *(fault for key in _CLASSES for fault in _converter_faults(settings, key, resolve, limits)),
        *_list_faults(settings, "transforms"),
        *_list_faults(settings, "predicates"),
        *_step_faults(settings, resolve, limits),
        *_predicate_faults(settings, resolve, limits),
        *_identity_faults(settings),
        *order_faults(settings, settings.get(VALUE_CONVERTER, BYTES)),
        *fill_faults(settings, settings.get(OUTPUT_VALUE_CONVERTER, settings.get(VALUE_CONVERTER, BYTES))),
    )


def options_of(spec: ClassSpec, classes: ClassNames, resolve: Resolve) -> Values:
    """Returns the settings of the class of `spec`, resolved and read. Raises ValueError, OptionsError."""
    kind = classes.find(spec.name).of.load()
    passwords = {option.name for option in kind.OPTIONS if option.kind == "PASSWORD"}
    for name, text in spec.texts.items():
        is_secret = OTHER_NAMES.get(name, name) in passwords
        remember_setting(text, is_secret=is_secret, over_rest=spec.limits.over_rest)
    texts = {name: _resolved(text, spec.limits, resolve) for name, text in spec.texts.items()}
    texts = settled(kind.OPTIONS, texts, converts=not issubclass(kind, Step))
    if faults := tuple(_file_faults(kind.OPTIONS, texts, spec.limits)):
        raise OptionsError(faults)
    with values_hidden(spec.texts, kind.OPTIONS):
        values = read(kind.OPTIONS, texts)
    return Values(values, {OTHER_NAMES.get(name, name): text for name, text in spec.texts.items()})


def _file_faults(options: Iterable[Option], texts: Mapping[str, str], limits: Limits) -> Iterator[Fault]:
    """Yields a fault for each file that a setting sent over REST names and that is not allowed: it is not opened."""
    for option in options:
        if option.is_file and option.name in texts:
            try:
                check_path(texts[option.name].strip(), limits)
            except SecretError as error:
                yield option.name, str(error)


def made(spec: ClassSpec, classes: ClassNames, resolve: Resolve) -> Step:
    """Makes the transform or predicate of `spec`. Raises ValueError, OptionsError."""
    named, options = classes.find(spec.name), options_of(spec, classes, resolve)
    with values_hidden(spec.texts, named.of.load().OPTIONS):
        return _with_side(named)(options)


def made_converter(spec: ClassSpec, resolve: Resolve, *, is_key: bool) -> Converter:
    """Makes the converter of `spec`. Raises ValueError, OptionsError."""
    kind, options = CONVERTERS.find(spec.name).of.load(), options_of(spec, CONVERTERS, resolve)
    with values_hidden(spec.texts, kind.OPTIONS):
        converter: Converter = kind(options, is_key=is_key)
    return converter


def _resolved(text: str, limits: Limits, resolve: Resolve) -> str:
    return resolve(text) if limits == UNLIMITED else resolve(text, limits)


def _with_side(named: Named) -> Callable[[Mapping[str, Any]], Step]:
    kind = named.of.load()
    if named.side is None:
        return kind
    assert issubclass(kind, SidedTransform)
    side = Side(named.side)
    return lambda options: kind(options, side)


def is_router(step: StepSpec) -> bool:
    """Returns whether a step changes the topic, and nothing else."""
    return step.of.name.rpartition(".")[2] == ROUTER


def steps_of_records(spec: ChainSpec) -> tuple[StepSpec, ...]:
    """Returns the steps that each record goes through: none if all of them are routers.

    What routers make of a topic is found once for all of its records (`routing`).
    """
    return () if all(map(is_router, spec.steps)) else spec.steps


def is_plain(spec: ChainSpec) -> bool:
    """Returns whether nothing is done with a record: no step looks at it, and no value of any bytes is a null."""
    has_nulls = CONVERTERS.find(spec.value.name).of.load().HAS_NULLS
    looks = spec.identity != BYTES_IDENTITY or bool(spec.order_path)
    return not steps_of_records(spec) and not looks and not _converts(spec) and not has_nulls


def changes_records(spec: ChainSpec) -> bool:
    """Returns whether what is published may differ from what was read: it has transforms, or another form."""
    return bool(spec.steps) or _converts(spec)


def _converts(spec: ChainSpec) -> bool:
    return spec.output_key is not None or spec.output_value is not None


def _converter(key: str, settings: Mapping[str, str], worker: Mapping[str, str], limits: Limits) -> ClassSpec:
    where = settings if key in settings else worker
    name = where.get(key, _DEFAULTS[key]).strip()
    return ClassSpec(name, _of(where, f"{key}.") if key in where else {}, limits if key in settings else UNLIMITED)


def _output_converter(key: str, settings: Mapping[str, str], limits: Limits) -> ClassSpec | None:
    return ClassSpec(settings[key].strip(), _of(settings, f"{key}."), limits) if key in settings else None


def _aliases(settings: Mapping[str, str], key: str) -> list[str]:
    return [alias.strip() for alias in settings.get(key, "").split(",") if alias.strip()]


def _of(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}


def _step(alias: str, texts: dict[str, str], limits: Limits) -> StepSpec:
    predicate = texts.get("predicate", "").strip() or None
    return StepSpec(alias, _class(texts, limits), predicate, texts.get("negate", "").strip().lower() == "true")


def _class(texts: Mapping[str, str], limits: Limits) -> ClassSpec:
    own = {name: text for name, text in texts.items() if name not in {"type", "predicate", "negate"}}
    return ClassSpec(texts.get("type", "").strip(), own, limits)


def _converter_faults(settings: Mapping[str, str], key: str, resolve: Resolve, limits: Limits) -> Iterator[Fault]:
    texts = _of(settings, f"{key}.")
    if key in settings:
        yield from _class_faults(ClassSpec(settings[key].strip(), texts, limits), _CLASSES[key], key, resolve, key)
    else:
        yield from ((f"{key}.{name}", f"has no effect without {key}; set that too.") for name in texts)


def _list_faults(settings: Mapping[str, str], key: str) -> Iterator[Fault]:
    aliases = _aliases(settings, key)
    for alias in sorted({candidate for candidate in aliases if aliases.count(candidate) > 1}):
        yield key, f'"{alias}" is named twice; each alias stands for one of {key}.'
    strange = {stray for name in _of(settings, f"{key}.") if (stray := name.partition(".")[0]) not in aliases}
    for alias in sorted(strange):
        yield f"{key}.{alias}", f'{key} does not name "{alias}"; add it there, or remove these settings.'


def _step_faults(settings: Mapping[str, str], resolve: Resolve, limits: Limits) -> Iterator[Fault]:
    predicates = _aliases(settings, "predicates")
    for alias in dict.fromkeys(_aliases(settings, "transforms")):
        at, texts = f"transforms.{alias}", _of(settings, f"transforms.{alias}.")
        step = _step(alias, texts, limits)
        # The output is called what a router says, so that a placeholder in its settings would be shown.
        shown = _shown_in(step.of.texts, limits) if is_router(step) else []
        yield from ((f"{at}.{name}", text) for name, text in shown)
        if not shown:
            yield from _class_faults(step.of, TRANSFORMS, f"{at}.type", resolve, at)
        if texts.get("negate", "false").strip().lower() not in {"true", "false"}:
            yield f"{at}.negate", f'"{texts["negate"]}" is not allowed: allowed is true or false.'
        if step.predicate is None:
            yield from [(f"{at}.negate", f"there is no {at}.predicate that it could negate.")] * ("negate" in texts)
        elif step.predicate not in predicates:
            yield f"{at}.predicate", f'predicates does not name "{step.predicate}".'
        elif not _is_of_topics(step, settings):
            yield f"{at}.predicate", _ONE_OUTPUT


def _shown_in(texts: Mapping[str, str], limits: Limits) -> list[Fault]:
    if not limits.over_rest:
        return []
    return [(name, f'"{text}" is not allowed: {SHOWN}') for name, text in texts.items() if has_placeholder(text)]


def _identity_faults(settings: Mapping[str, str]) -> Iterator[Fault]:
    identity = settings.get(KEY_IDENTITY, "").strip().lower()
    name = settings.get(OUTPUT_KEY_CONVERTER, settings.get(KEY_CONVERTER, BYTES)).strip()
    with suppress(ValueError):  # a converter that is not known is a fault of its own
        written = CONVERTERS.find(name).of.java
        if identity == "avro" and written != AVRO_CONVERTER:
            yield KEY_IDENTITY, _NEEDS_AVRO
        elif identity == "json" and OUTPUT_KEY_CONVERTER in settings and written in _NO_JSON:
            text = f'json compares keys as they are written, and output.key.converter "{name}" writes no JSON. '
            yield KEY_IDENTITY, f"{text}Write keyfold.Json there, or compare keys by bytes or avro."


def _is_of_topics(step: StepSpec, settings: Mapping[str, str]) -> bool:
    """Returns whether the records that a router routes are all of a topic, or none."""
    kind = settings.get(f"predicates.{step.predicate}.type", "")
    return not step.of.name.endswith("RegexRouter") or kind.strip().endswith(OF_TOPICS)


def _predicate_faults(settings: Mapping[str, str], resolve: Resolve, limits: Limits) -> Iterator[Fault]:
    for alias in dict.fromkeys(_aliases(settings, "predicates")):
        at = f"predicates.{alias}"
        spec = _class(_of(settings, f"{at}."), limits)
        shown = _shown_in(spec.texts, limits) if spec.name.rpartition(".")[2] == OF_TOPICS else []
        yield from ((f"{at}.{name}", text) for name, text in shown)
        if not shown:
            yield from _class_faults(spec, PREDICATES, f"{at}.type", resolve, at)


def _class_faults(spec: ClassSpec, classes: ClassNames, key: str, resolve: Resolve, prefix: str) -> Iterator[Fault]:
    """Yields what is wrong with a class, on `key`, and with its settings, which begin with `prefix`."""
    if not spec.name:
        yield key, f"missing; it is required: the name of a {classes.kind}'s class."
        return
    try:
        named = classes.find(spec.name)
    except ValueError as error:
        yield key, f'"{spec.name}" is not allowed: {error}'
        return
    for name, text in _setting_faults(spec, named, key, resolve):
        yield (f"{prefix}.{name}" if name else prefix), text


def _setting_faults(spec: ClassSpec, named: Named, key: str, resolve: Resolve) -> Iterator[Fault]:
    """Yields what is wrong with the settings of a class that there is, each under its name ("": of no single one).

    One is made of it. A placeholder that cannot be resolved is a fault of the setting that it stands in, and of that
    alone.
    """
    kind, resolved, secret = named.of.load(), {}, set[str]()
    for name, text in spec.texts.items():
        try:
            _refuse_chosen_class(name, spec, kind.OPTIONS)
            resolved[name] = _resolved(text, spec.limits, resolve)
        except (ConfigError, ValueError) as error:
            secret |= {name, OTHER_NAMES.get(name, name)}
            yield name, str(error)
    texts = settled(kind.OPTIONS, resolved, converts=not issubclass(kind, Step))
    strange = unknown(kind.OPTIONS, texts)
    for name in strange:
        known = ", ".join(option.name for option in kind.OPTIONS) or "none"
        yield name, reason(name, kind.OPTIONS) or f"{named.of.simple} has no such setting; it has: {known}."
    for name, text in _file_faults(kind.OPTIONS, texts, spec.limits):
        secret.add(name)
        yield name_in_file(name, spec.texts), text
    try:
        with values_hidden(spec.texts, kind.OPTIONS):
            options = read([declared for declared in kind.OPTIONS if declared.name not in secret], texts)
            if not secret:
                _try(named, options, is_key=key in {KEY_CONVERTER, OUTPUT_KEY_CONVERTER})
    except OptionsError as error:
        named_so = ((name_in_file(name, spec.texts), text) for name, text in error.faults)
        misspelt = {meant(name, kind.OPTIONS) for name in strange} - texts.keys()
        yield from (fault for fault in named_so if fault[0] not in {*strange, *misspelt})
    except (ConfigError, ValueError) as error:
        yield "", str(error)


def _refuse_chosen_class(name: str, spec: ClassSpec, options: Iterable[Option]) -> None:
    """Raises ValueError if a placeholder of a request would say which class is taken, by the setting `name`."""
    text = spec.texts[name]
    if spec.limits.over_rest and has_placeholder(text) and (name, "CLASS") in {(o.name, o.kind) for o in options}:
        raise ValueError(f'"{text}" is not allowed: over REST no placeholder says which class is taken; write it out.')


def _try(named: Named, options: Mapping[str, Any], *, is_key: bool) -> None:
    """Makes a class of its settings, and lets go of it again. Raises OptionsError for settings that do not fit."""
    kind = named.of.load()
    if issubclass(kind, Converter):
        kind(options, is_key=is_key).close()
    else:
        _with_side(named)(options)
