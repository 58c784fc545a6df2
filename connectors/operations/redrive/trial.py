"""Tries what a connector does to the records of dead letters now: whether they would be let go again, and why.

Nothing is written or sent. What only the brokers can say, as with `max.message.bytes`, is not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from compactor.model.record import NULL_KEY, SOURCE
from connectors.chain.chain_pool import borrowed
from connectors.chain.spec import ChainSpec
from connectors.operations.redrive.letters import Letter
from connectors.placeholders import resolve
from connectors.registry.patience import Patience
from connectors.rejection import Rejection, rejection_of

_CREATE_TIME: Final = 0
"""The id of Kafka's CreateTime, which the time of a record that is sent back is."""


def rejections(
    chain: ChainSpec, letters: Sequence[tuple[str, Letter]], patience: Patience, *, keyed: bool
) -> list[Rejection | None]:
    """Returns for each letter, given with the topic that it goes to, why its record would be let go; None: it is taken.

    `keyed`: a record without a key is let go. Raises RegistryError, PortionLateError once `patience` is used up, and
    PatternError.
    """
    with borrowed(chain, resolve, keyed=keyed, patience=patience) as run:
        batches = run.through([_batch(letters)])
        rows = [row for batch in batches for row in batch.select(["offset", "key", "rejected"]).to_pylist()]
    # Records that the chain drops are in no row: they are taken, and filtered.
    reasons = {row["offset"]: row["rejected"] or (NULL_KEY if keyed and row["key"] is None else None) for row in rows}
    texts = (reasons.get(place) for place in range(len(letters)))
    return [None if text is None else rejection_of(text) for text in texts]


def _batch(letters: Sequence[tuple[str, Letter]]) -> pa.RecordBatch:
    """Returns the records as a reading task has them; their offsets are their places."""
    rows = [
        {
            "topic": topic,
            "partition": 0,
            "offset": place,
            "timestamp": letter.timestamp,
            "timestamp_type": _CREATE_TIME,
            "key": letter.key,
            "value": letter.value,
            "headers": [{"key": name, "value": _bytes(value)} for name, value in letter.headers],
        }
        for place, (topic, letter) in enumerate(letters)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
