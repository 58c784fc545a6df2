"""Finds clashes between the topics of one worker's connectors.

Connectors may be a chain: one reads what another publishes. Their letters may share a topic. Refused are an output or a
letter topic to which another connector publishes, and a loop, by which records come back for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.rules import LETTERS
from connectors.config.selection import is_source, matches
from connectors.config.selection import pattern as pattern_of
from connectors.config.topics import is_topic_name, source_of
from connectors.errors import OutputError, PatternError
from connectors.placeholders import has_placeholder

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
        yield Fault(LETTERS, f"{text} a topic of their own.")
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
        LETTERS if mine.topic == own.dead_letter_topic else _OUTPUT,
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
