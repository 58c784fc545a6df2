"""Says what a truncate has left of a table, by the connector's order (compaction.order=field:PATH). Pure.

A truncate has no key, and supersedes every record of its topic that is earlier by the order, in whatever partition. Of
an equal value only those below it in its own partition are earlier; of the others nothing tells. A record without a
value is earlier than each truncate.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct


class Fence(Struct, frozen=True):
    """The latest truncates of a topic: their `value` of the order, and by partition the offset of the last of them."""

    value: bytes
    offsets: dict[int, int]

    def reaches(self, partition: int, value: bytes, offset: int) -> bool:
        """Returns whether the truncate at `offset` of `partition` supersedes nothing that is after the fence."""
        return value < self.value or (value == self.value and offset <= self.offsets.get(partition, -1))


def raised(fence: Fence | None, partition: int, value: bytes, offset: int) -> Fence:
    """Returns the fence after one more truncate: `fence` itself if it reaches that one."""
    if fence is None or value > fence.value:
        return Fence(value, {partition: offset})
    if fence.reaches(partition, value, offset):
        return fence
    return Fence(value, {**fence.offsets, partition: offset})


def are_before(fence: Fence, partition: int, offsets: pa.Array, values: pa.Array) -> pa.Array:
    """Returns which records of `partition`, with `values` of the order, the truncates supersede."""
    is_tied = pc.and_(pc.equal(values, fence.value), pc.less(offsets, fence.offsets.get(partition, -1)))
    return pc.fill_null(pc.or_(pc.less(values, fence.value), is_tied), fill_value=True)
