"""Finds the topic that a connector's routers make of a source topic, before any record is there: a log has one output.

On its own because configuration, source and broker ask it, and none of them has records.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from connectors.chain.spec import ChainSpec, Resolve, is_router, made
from connectors.data.record import ConnectRecord
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Predicate, Transform


def has_routers(spec: ChainSpec) -> bool:
    """Returns whether any step of `spec` changes topics."""
    return any(is_router(step) for step in spec.steps)


def routed(spec: ChainSpec, topic: str, resolve: Resolve) -> str:
    """Returns the topic that the routers of `spec` make of `topic`; without any that is itself.

    The predicates of routers look at topics alone (`chain_faults`).
    """
    if not has_routers(spec):
        return topic
    record = ConnectRecord(topic, 0, 0, 0, None, None, None, None)
    for transform, predicate, negate in _routers(msgspec.json.encode(spec), resolve):
        if predicate is None or predicate.test(record) is not negate:
            record = transform.apply(record) or record
    return record.topic


@lru_cache(maxsize=256)
def _routers(encoded: bytes, resolve: Resolve) -> tuple[tuple[Transform, Predicate | None, bool], ...]:
    spec = msgspec.json.decode(encoded, type=ChainSpec)
    found = []
    for step in filter(is_router, spec.steps):
        transform = made(step.of, TRANSFORMS, resolve)
        predicate = made(spec.predicates[step.predicate], PREDICATES, resolve) if step.predicate else None
        assert isinstance(transform, Transform)
        assert predicate is None or isinstance(predicate, Predicate)
        found.append((transform, predicate, step.negate))
    return tuple(found)
