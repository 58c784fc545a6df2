"""Rules of the connector file that take more than one key.

Each rule names the keys that it needs and gets their values; it is left out while one of them has a fault of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from connectors.config import suggest
from connectors.config.faults import Fault
from connectors.config.keys import CONNECTOR_KEYS
from connectors.config.topic_settings import KEYFOLDS_OWN, TOPIC_SETTINGS

Rule = Callable[..., Iterator[Fault]]
_DLQ: Final = "errors.deadletterqueue.topic.name"


def check(values: Mapping[str, Any]) -> tuple[Fault, ...]:
    """The faults that the rules find in `values`, which lack the keys that are at fault themselves."""
    return tuple(
        fault for needs, rule in RULES if all(n in values for n in needs) for fault in rule(*(values[n] for n in needs))
    )


def output_name(template: str, topic: str) -> str | None:
    """The output topic of `topic`; None where nothing is published."""
    return None if template == "none" else template.replace("${topic}", topic)


def _one_source(topics: tuple[str, ...] | None, pattern: str | None) -> Iterator[Fault]:
    if topics is None and pattern is None:
        yield Fault("topics", "must configure one of topics or topics.regex.")
    if topics is not None and pattern is not None:
        yield Fault("topics", "topics and topics.regex are mutually exclusive options, but both are set; remove one.")


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


def _own_output(template: str, topics: tuple[str, ...] | None) -> Iterator[Fault]:
    for topic in topics or ():
        name = output_name(template, topic)
        if name in (topics or ()):
            yield Fault("topics", f'"{name}" is the output topic of "{topic}"; the same connector cannot read it.')
        if name and len(name) > 249:
            yield Fault("output.topic", f'the output topic of "{topic}" would have more than 249 characters.')


def _own_letters(letters: str | None, topics: tuple[str, ...] | None, template: str) -> Iterator[Fault]:
    if letters is None:
        return
    if letters in (topics or ()):
        text = f"The DLQ topic '{letters}' may not be included in the list of topics consumed by the connector."
        yield Fault(_DLQ, text)
    if letters == template or any(letters == output_name(template, topic) for topic in topics or ()):
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


def _topic_settings(settings: Mapping[str, str]) -> Iterator[Fault]:
    for name in settings:
        if name in KEYFOLDS_OWN:
            yield Fault(f"output.topic.config.{name}", f"keyfold sets this itself: {KEYFOLDS_OWN[name]}.")
        elif name not in TOPIC_SETTINGS:
            yield Fault(f"output.topic.config.{name}", suggest.unknown(name, TOPIC_SETTINGS, "topic setting"))


RULES: Final[tuple[tuple[tuple[str, ...], Rule], ...]] = (
    (("topics", "topics.regex"), _one_source),
    (("min.compaction.lag.ms", "max.compaction.lag.ms"), _lags),
    (("output.topic", "topics", "topics.regex"), _fixed_output),
    (("output.topic", "topics.regex"), _regex_output),
    (("output.topic", "topics"), _own_output),
    ((_DLQ, "topics", "output.topic"), _own_letters),
    ((_DLQ, "errors.tolerance"), _letters_need_tolerance),
    ((_DLQ, "errors.deadletterqueue.context.headers.enable"), _needs_letters),
    (("snapshot.location", "snapshot.interval.ms", "snapshot.string.columns"), _snapshots_need_place),
    (("cleanup.policy", "output.topic", "snapshot.location"), _raw_copy),
    (("restart.backoff.initial.ms", "restart.backoff.max.ms"), _backoff),
    (("output.topic.config.",), _topic_settings),
)

assert all(name in CONNECTOR_KEYS or name.endswith(".") for needs, _ in RULES for name in needs)
