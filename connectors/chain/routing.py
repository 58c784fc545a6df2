"""Finds the topic that a connector's routers make of a source topic, before any record is there.

A log has one output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import msgspec

from connectors.chain.spec import ChainSpec, Resolve, StepSpec, is_router, made
from connectors.data.record import ConnectRecord
from connectors.errors import PatternError
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Predicate, Transform


def has_routers(spec: ChainSpec) -> bool:
    """Returns whether any step of `spec` changes topics."""
    return any(is_router(step) for step in spec.steps)


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
        with _naming(f"predicates.{self.step.predicate}.pattern"):
            if self.predicate is not None and self.predicate.test(record) is self.step.negate:
                return record
        with _naming(f"transforms.{self.step.alias}.regex"):
            return self.transform.apply(record) or record


@contextmanager
def _naming(setting: str) -> Iterator[None]:
    try:
        yield
    except PatternError as error:
        error.setting = setting
        raise


@lru_cache(maxsize=256)
def _routers(encoded: bytes, resolve: Resolve) -> tuple[_Router, ...]:
    spec = msgspec.json.decode(encoded, type=ChainSpec)
    routers = []
    for step in filter(is_router, spec.steps):
        transform = made(step.of, TRANSFORMS, resolve)
        predicate = made(spec.predicates[step.predicate], PREDICATES, resolve) if step.predicate else None
        assert isinstance(transform, Transform)
        assert predicate is None or isinstance(predicate, Predicate)
        routers.append(_Router(step, transform, predicate))
    return tuple(routers)
