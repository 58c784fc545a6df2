"""Finds the topic that a connector's routers make of a source topic, before any record is there.

A log has one output.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from compactor.json_types import decoded_as
from connectors.chain.spec import ChainSpec, Fault, Resolve, StepSpec, is_router, made
from connectors.data.record import ConnectRecord
from connectors.errors import PatternError
from connectors.match_time import CHECK_S, matches_within
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Predicate, Transform

MOST_MATCHES: Final = 100_000
"""Topics of a connector, times the patterns that each of them is matched against: a second of a core's time. They are
matched when a config is checked, and when the worker starts."""
_OF_A_PATTERN: Final = 10_000
"""As many topics `topics.regex` counts as: those that other connectors name are matched too, to see what is shared."""


def has_routers(spec: ChainSpec) -> bool:
    """Returns whether any step of `spec` changes topics."""
    return any(is_router(step) for step in spec.steps)


def only_routers(spec: ChainSpec) -> ChainSpec:
    """Returns the part of `spec` that `routed` looks at, so that it does so once for all topics."""
    steps = tuple(filter(is_router, spec.steps))
    named = {step.predicate for step in steps}
    return replace(
        spec, steps=steps, predicates={alias: each for alias, each in spec.predicates.items() if alias in named}
    )


def matches_fault(spec: ChainSpec, topics: int | None) -> Fault | None:
    """Returns the fault of a connector with so many `topics` (None: `topics.regex`) if there are too many matches."""
    patterns = sum(1 if step.predicate is None else 2 for step in spec.steps if is_router(step))
    if patterns * (topics or _OF_A_PATTERN) <= MOST_MATCHES:
        return None
    if topics is None:
        said = f"are {patterns}; with topics.regex {MOST_MATCHES // _OF_A_PATTERN} are allowed."
    else:
        said = f"are {patterns} for {topics} topics, {patterns * topics} matches in all; allowed are {MOST_MATCHES}."
    return "transforms", f"RegexRouters and their predicates {said} Say more with each, or make several connectors."


def output_name(template: str, topic: str) -> str | None:
    """Returns the output topic of `topic` by `output.topic`; None if nothing is published."""
    return None if template == "none" else template.replace("${topic}", topic)


def output_of(spec: ChainSpec, topic: str, resolve: Resolve) -> str | None:
    """Returns the output topic of the source topic `topic`; None if nothing is published. Raises PatternError."""
    return output_name(spec.output, routed(spec, topic, resolve))


def outputs_of(
    spec: ChainSpec, topics: Iterable[str] | None, resolve: Resolve
) -> tuple[dict[str, str | None], tuple[Fault, ...]]:
    """Returns the output topic of each of `topics`, none of a pattern (None), and what is wrong with the routers.

    Only the routers of `spec` are looked at, in which each class by itself is right (`chain_faults`). All matches may
    take CHECK_S together.
    """
    named = None if topics is None else tuple(topics)
    routers = only_routers(spec)
    if fault := matches_fault(routers, None if named is None else len(named)):
        return {}, (fault,)
    try:
        with matches_within(CHECK_S):
            return {topic: output_of(routers, topic, resolve) for topic in named or ()}, ()
    except PatternError as error:
        return {}, ((error.setting, str(error)),)


def routed(spec: ChainSpec, topic: str, resolve: Resolve) -> str:
    """Returns the topic that the routers of `spec` make of `topic`; without any that is itself.

    The predicates of routers look at topics alone (`chain_faults`). Raises PatternError naming the setting of a pattern
    that takes too long.
    """
    if not has_routers(spec):
        return topic
    record = ConnectRecord(topic, 0, 0, 0, None, None, None, None)
    for router in _routers(msgspec.json.encode(spec), resolve):
        record = router.of(record)
    return record.topic


class _Router(NamedTuple):
    """A step that routes, with its predicate."""

    step: StepSpec
    transform: Transform
    predicate: Predicate | None

    def of(self, record: ConnectRecord) -> ConnectRecord:
        """Returns `record` with its new topic. Raises PatternError."""
        setting = f"predicates.{self.step.predicate}.pattern"
        try:
            if self.predicate is not None and self.predicate.test(record) is self.step.negate:
                return record
            setting = f"transforms.{self.step.alias}.regex"
            return self.transform.apply(record) or record
        except PatternError as error:
            error.setting = setting
            raise


@lru_cache(maxsize=256)
def _routers(encoded: bytes, resolve: Resolve) -> tuple[_Router, ...]:
    spec = decoded_as(encoded, ChainSpec)
    routers = []
    for step in filter(is_router, spec.steps):
        transform = made(step.of, TRANSFORMS, resolve)
        predicate = made(spec.predicates[step.predicate], PREDICATES, resolve) if step.predicate else None
        assert isinstance(transform, Transform)
        assert predicate is None or isinstance(predicate, Predicate)
        routers.append(_Router(step, transform, predicate))
    return tuple(routers)
