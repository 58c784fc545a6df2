"""Checks the rules that take more than one setting: of a connector's file, and of several connectors' topics.

Each rule of a file stands in `RULES` with the fields of ConnectorConfig that it gets; it is left out while one of them
has a fault of its own.

Connectors of one worker may be a chain: one reads what another publishes. Their letters may share a topic. Refused are
an output or a letter topic to which another connector publishes, and a loop, by which records come back for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from connectors.chain.hidden_values import places_of
from connectors.config import errors
from connectors.config.errors import Fault
from connectors.config.topics import is_internal, is_source, is_topic_name, matches, source_of
from connectors.config.topics import pattern as pattern_of
from connectors.errors import OutputError, PatternError
from connectors.placeholders import has_placeholder

if TYPE_CHECKING:  # which needs the rules
    from connectors.config.connector import ConnectorConfig

Rule = Callable[..., Iterator[Fault]]
_DLQ: Final = "errors.deadletterqueue.topic.name"
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

    In addition `outputs` has the output topic of each topic of `topics`, as far as nothing is wrong with what says it.
    `placeholders` has the fields that get their values from placeholders, with their keys: a fault shows no such value.
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
            why = "have more than 249 characters" if len(name) > 249 else f'be "{name}", which {_unfit(name)}'
            text = f'the output topic of "{topic}" would {why}.'
            yield Fault("output.topic", text)
        other = first.setdefault(name, topic)
        if other != topic:
            yield Fault("transforms", f'"{name}" would be the output topic of "{other}" and of "{topic}".')


def _unfit(name: str) -> str:
    return "begins as internal topics do" if is_topic_name(name) else "is no name of a topic"


def _own_letters(
    letters: str | None, topics: tuple[str, ...] | None, template: str, outputs: Mapping[str, str | None]
) -> Iterator[Fault]:
    if letters is None:
        return
    if letters in (topics or ()):
        text = f"The DLQ topic '{letters}' may not be included in the list of topics consumed by the connector."
        yield Fault(_DLQ, text)
    if letters == template or letters in outputs.values():
        yield Fault(_DLQ, f'"{letters}" is the output topic; dead letters need a topic of their own.')


def _letters_need_tolerance(letters: str | None, tolerance: str) -> Iterator[Fault]:
    if letters is not None and tolerance == "none":
        yield Fault(_DLQ, "nothing would ever be sent there with errors.tolerance=none; set errors.tolerance=all.")


def _needs_letters(letters: str | None, headers: object) -> Iterator[Fault]:
    if letters is None and headers:
        yield Fault("errors.deadletterqueue.context.headers.enable", f"has no effect without {_DLQ}; set that too.")


def _snapshots_need_place(location: str | None, interval: int, strings: frozenset[str]) -> Iterator[Fault]:
    given = {"snapshot.interval.ms": interval != -1, "snapshot.string.columns": bool(strings)}
    for name in (name for name, is_given in given.items() if is_given and location is None):
        yield Fault(name, "has no effect without snapshot.location; set that too.")


def _raw_copy(policy: frozenset[str], template: str, location: str | None) -> Iterator[Fault]:
    if "compact" in policy:
        return
    if template != "none":
        text = (
            "with cleanup.policy=delete there is no latest record of a key to publish; set it to none, or add compact."
        )
        yield Fault("output.topic", text)
    if location is not None:
        text = "with cleanup.policy=delete there is no table of keys; remove it, or add compact to cleanup.policy."
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


def _by_what_is_kept(key: str, default: str, value: str, policy: frozenset[str], index: str) -> Iterator[Fault]:
    """Yields what keeps the setting `key` from being another than `default`."""
    if value == default:
        return
    reasons = {
        "no keys are compared without compact in cleanup.policy": "compact" not in policy,
        "what is kept of a key is found by an index of keys, and state.index is never": index == "never",
    }
    yield from (Fault(key, f'"{value}" cannot be: {reason}.') for reason, holds in reasons.items() if holds)


def _unchanged(way: str, template: str, policy: frozenset[str], index: str) -> Iterator[Fault]:
    if way == "send":
        return
    reasons = {
        "nothing is published with output.topic=none": template == "none",
        "it needs cleanup.policy=compact alone: what retention takes of the output would not come again": (
            policy != {"compact"}
        ),
        "records are compared by an index of keys, and state.index is never": index == "never",
    }
    yield from (
        Fault("publish.unchanged", f'"{way}" cannot be: {reason}.') for reason, holds in reasons.items() if holds
    )


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
    (("snapshot_location", "snapshot_interval_ms", "snapshot_string_columns"), _snapshots_need_place),
    (("cleanup_policy", "output_topic_template", "snapshot_location"), _raw_copy),
    (("key_identity", "cleanup_policy"), _compared_keys),
    (("order", "cleanup_policy", "state_index"), partial(_by_what_is_kept, "compaction.order", "offset")),
    (("fill", "cleanup_policy", "state_index"), partial(_by_what_is_kept, "compaction.fill", "none")),
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
        _raw_copy,
        _regex_output,
    ]
)
"""Rules with faults that hold no value: what they say may be shown of placeholders too."""

_OUTPUT: Final = "output.topic"
_ANYTHING: Final = re.compile(r"\.[*+]")
_MOST_GUESSES: Final = 100
"""Parts of a pattern that names are guessed of."""
_MOST_NAMES: Final = 10_000
"""Topics that are followed for one connector, 4 µs for each pattern that one is held against. A loop shows with the
first of its topics; more would only take longer for connectors that have none."""
_MOST_PASSES: Final = 10
"""How often names may come through one pattern, each time another name: more is no chain that anyone means."""
_SHOWN: Final = 6
"""Topics of a loop that are named."""


class _Step(Struct, frozen=True):
    """`config` reads a topic, and writes to `topic` what it makes of it, or its letters."""

    config: ConnectorConfig
    topic: str


def pair_faults(own: ConnectorConfig, other: ConnectorConfig, file: object) -> Iterator[Fault]:
    """Yields the faults of `own` if it shares an output with `other`, which is in `file`, or letters with an output."""
    shared = _shared_output(own, other)
    if shared is not None:
        whose = f'is also the output topic of connector "{other.name}" in {file}; each needs one of its own.'
        yield Fault(_OUTPUT, f"{_quoted(shared, own, other)} {whose}")
    letters, named = own.dead_letter_topic, f'connector "{other.name}" in {file}'
    if letters is not None and _publishes_to(other, letters):
        text = f"{_quoted(letters, own, other)} is the output topic of {named}; dead letters need"
        yield Fault(_DLQ, f"{text} a topic of their own.")
    letters = other.dead_letter_topic
    if letters is not None and _publishes_to(own, letters):
        text = f"{_quoted(letters, own, other)} is the dead letter topic of {named}; an output needs"
        yield Fault(_OUTPUT, f"{text} a topic of its own.")


def _quoted(topic: str, own: ConnectorConfig, other: ConnectorConfig) -> str:
    """Quotes a topic; if placeholders stand in a file, the setting as it is written."""
    if _has_placeholders((own, other)):
        topic = own.given.get(_OUTPUT, "${topic}.compacted")
    return f'"{topic}"'


def _has_placeholders(configs: Iterable[ConnectorConfig]) -> bool:
    return any(has_placeholder(text) for config in configs for text in config.given.values())


def _shared_output(own: ConnectorConfig, other: ConnectorConfig) -> str | None:
    """Returns an output topic that both publish to, as a name or a template; None if nothing says that there is one.

    Of two patterns only equal ones are known to match the same topics; what they come to share is found when it is
    published (`connectors.sinks.output_reader`).
    """
    if not own.publishes or not other.publishes:
        return None
    try:
        shared = own.named_outputs.keys() & other.named_outputs.keys()
        return min(shared, default=None) or _by_pattern(own, other) or _by_pattern(other, own) or _patterns(own, other)
    except PatternError:  # of the other one, which fails by it; that of `own` was matched when it was checked
        return None


def _by_pattern(own: ConnectorConfig, other: ConnectorConfig) -> str | None:
    """Returns an output of `own`'s named topics that `other` gives the same topic, which its pattern matches."""
    if other.topics_regex is None:
        return None
    pattern = pattern_of(other)
    for name, topic in own.named_outputs.items():
        if other.output_topic(topic) == name and pattern.matches(topic):
            return name
    return None


def _patterns(own: ConnectorConfig, other: ConnectorConfig) -> str | None:
    same = own.topics_regex is not None and (own.topics_regex, own.output_topic_template) == (
        other.topics_regex,
        other.output_topic_template,
    )
    return own.output_topic_template if same else None


def _publishes_to(config: ConnectorConfig, name: str) -> bool:
    """Returns whether `name` is an output of the connector; not known of a pattern with a router."""
    try:
        if config.topics is not None:
            return name in config.named_outputs
        source = source_of(config.output_topic_template, name)
        return source is not None and not config.routes and matches(config, source)
    except PatternError:
        return False


def loop_fault(own: ConnectorConfig, others: Sequence[tuple[ConnectorConfig, object]]) -> Fault | None:
    """Returns the fault of `own` if what it writes comes back to it through `others`, each with its file.

    Of patterns only those loops are found on which a topic lies that a file names, or that is plain from a pattern.
    """
    configs = [own, *(other for other, _ in others)]
    loop = _loop(own, configs, _starts(own, configs[1:]))
    if loop is None:
        return None
    files = {id(other): file for other, file in others}
    through = _through(own, loop)
    mine = next(step for step in loop if step.config is own)
    return Fault(
        _DLQ if mine.topic == own.dead_letter_topic else _OUTPUT,
        f'what is written there comes back by connector "{through.name}" in {files.get(id(through))}'
        f"{_shown(loop, configs)}: records would go round for ever.",
    )


def refuse_loop(own: ConnectorConfig, others: Iterable[ConnectorConfig], topics: Iterable[str]) -> None:
    """Raises OutputError if what `own` makes of one of `topics`, which it is about to read, comes back to it."""
    configs = [own, *(other for other in others if other.name != own.name)]
    loop = _loop(own, configs, topics)
    if loop is not None:
        raise OutputError(
            f"Connector {own.name}: what it writes comes back to it by connector {_through(own, loop).name}"
            f"{_shown(loop, configs)}: records would go round for ever.",
            "Keep the topic out of topics.regex, or change output.topic, of one of these connectors.",
        )


def _through(own: ConnectorConfig, loop: Sequence[_Step]) -> ConnectorConfig:
    return next((step.config for step in loop if step.config is not own), own)


def _shown(loop: Sequence[_Step], configs: Sequence[ConnectorConfig]) -> str:
    """Returns the topics of a loop in parentheses, nothing if placeholders may stand for some of them."""
    if _has_placeholders(configs):
        return ""
    topics = [step.topic for step in (loop[-1], *loop)]
    return f" ({' → '.join(topics[:_SHOWN])}{' → …' if len(topics) > _SHOWN else ''})"


def _starts(own: ConnectorConfig, others: Sequence[ConnectorConfig]) -> Iterator[str]:
    """Yields the topics that `own` reads and others may write: each loop of topics that files name has one of them."""
    if own.topics is None:
        guesses = (name for config in (own, *others) for name in _guessed(config.topics_regex or ""))
        yield from (name for name in guesses if is_source(own, name))
    for other in others:
        yield from (name for name in _written(own, other) if own.topics is not None or is_source(own, name))


def _guessed(regex: str) -> Iterator[str]:
    """Yields names that a pattern may match; those of two patterns may read each other's outputs for ever."""
    for part in islice((regex, *regex.split("|")), _MOST_GUESSES):
        yield _ANYTHING.sub("t", part).replace("\\", "")


def _written(own: ConnectorConfig, other: ConnectorConfig) -> Iterator[str]:
    """Yields topics that `other` may write; those of `own` alone, if it names its topics."""
    letters = {other.dead_letter_topic} - {None}
    try:
        names = letters | other.named_outputs.keys()
    except PatternError:
        names = letters
    yield from (name for name in (names if own.topics is None else names & own.source_names) if name)
    if other.topics is None and other.publishes:
        template, routes = other.output_topic_template, other.routes
        yield from (name for name in own.topics or () if routes or source_of(template, name) is not None)


def _loop(own: ConnectorConfig, configs: Sequence[ConnectorConfig], starts: Iterable[str]) -> list[_Step] | None:
    """Follows `starts` through `configs`; returns the steps of the first loop that `own` is in, the last to its start.

    Names that become longer each time never repeat: then the steps until they are no names of topics any more.
    """
    done: set[str] = set()
    for start in starts:
        path = [_Step(own, start)]  # what leads to the start does not count
        ways = [_steps(start, configs)]
        while ways and len(done) < _MOST_NAMES:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
                done.add(path.pop().topic)
                continue
            on_path = next((at for at, before in enumerate(path) if before.topic == step.topic), None)
            loop = [*path[1 if on_path is None else on_path + 1 :], step]
            passes = sum(each.config is own for each in loop)
            if passes and (on_path is not None or _is_endless(own, step.topic, passes)):
                return loop
            if on_path is None and step.topic not in done and is_topic_name(step.topic):
                path.append(step)
                ways.append(_steps(step.topic, configs))
    return None


def _is_endless(own: ConnectorConfig, topic: str, passes: int) -> bool:
    """Returns whether names that come through the pattern of `own` become longer without end."""
    return own.topics is None and (passes > _MOST_PASSES or (passes > 1 and not is_topic_name(topic)))


def _steps(topic: str, configs: Iterable[ConnectorConfig]) -> Iterator[_Step]:
    """Yields a step for each topic that a reader of `topic` writes to."""
    for config in configs:
        if is_source(config, topic):
            try:
                written = (config.output_topic(topic), config.dead_letter_topic)
            except PatternError:
                continue
            yield from (_Step(config, name) for name in written if name is not None)
