"""Counts the truncates of a partition, keeps the latest by the connector's order, and says why one is refused."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from connectors.chain.spec import ChainSpec
from connectors.errors import DataError
from connectors.transforms.transform import SWEEP

TRUNCATED: Final = "The table was truncated, and debezium.truncate is fail: set warn to go on."
"""Why a truncate is refused."""
UNORDERED: Final = "The table was truncated, and the event lacks the field of compaction.order: nothing is before it."
"""Why one cannot be applied."""


class Truncates(NamedTuple):
    """How many have come since the last range report, `number`, and the offset of the last one.

    `order` and `at`: value and offset of the latest one, if the order is a field.
    """

    number: int = 0
    last: int | None = None
    order: bytes | None = None
    at: int | None = None

    def with_one(self, offset: int, order: bytes | None) -> Truncates:
        """Returns them after one more, at an offset above the others."""
        is_latest = order is not None and (self.order is None or order >= self.order)
        latest = (order, offset) if is_latest else (self.order, self.at)
        return Truncates(self.number + 1, offset, *latest)

    def report(self) -> dict[str, Any]:
        """Returns what a range report (record.RANGE) says of them."""
        return {
            "truncates": self.number,
            "last_truncate": self.last,
            "truncate_order": self.order,
            "truncate_at": self.at,
        }


def refusal(spec: ChainSpec, order: bytes | None) -> DataError | None:
    """Returns why a truncate with the value `order` is a bad record; None if it is not."""
    if spec.fails_truncates:
        return DataError(TRUNCATED, SWEEP)
    return DataError(UNORDERED, SWEEP) if spec.applies_truncates and spec.order_path and order is None else None
