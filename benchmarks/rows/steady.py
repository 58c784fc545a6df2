"""A steady load without Kafka: records over keys that come equally often, as the Arrow tables that runs hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from benchmarks.rows.kept import TOPIC
from compactor.model.record import RUN

MINUTE_MS: Final = 60_000
_POOL_BYTES: Final = 1 << 20


class Steady(Struct, frozen=True, kw_only=True):
    """So many `records` a minute over `keys` keys, each of which belongs to one of `partitions`."""

    records: int
    keys: int
    partitions: int = 2
    value_bytes: int = 100

    @property
    def each(self) -> int:
        """Records of one partition in a minute."""
        return self.records // self.partitions

    def tables(self, minutes: int) -> Iterator[list[pa.Table]]:
        """For each minute one table for each partition."""
        chance = np.random.default_rng(0)
        pool = chance.bytes(_POOL_BYTES + self.value_bytes)  # random: nothing is flattered by compression
        for minute in range(minutes):
            found: list[pa.Table] = []
            for partition in range(self.partitions):
                keys = chance.integers(0, self.keys // self.partitions, self.each).tolist()
                starts = chance.integers(0, _POOL_BYTES, self.each).tolist()
                values = [pool[start : start + self.value_bytes] for start in starts]
                found.append(self._table(partition, minute, [b"%d-%010d" % (partition, key) for key in keys], values))
            yield found

    def _table(self, partition: int, minute: int, keys: Sequence[bytes], values: Sequence[bytes]) -> pa.Table:
        size = len(keys)
        columns = {
            "topic": pa.repeat(TOPIC, size),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), size),
            "offset": pa.array(range(minute * size, (minute + 1) * size), pa.int64()),
            "timestamp": pa.array([minute * MINUTE_MS + number * MINUTE_MS // size for number in range(size)]),
            "timestamp_type": pa.repeat(pa.scalar(0, pa.int32()), size),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[]] * size, RUN.field("headers").type),
            "delete_horizon": pa.nulls(size, pa.int64()),
            "rejected": pa.nulls(size, pa.string()),
        }
        return pa.table(columns, schema=RUN)
