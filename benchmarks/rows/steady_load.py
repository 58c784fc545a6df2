"""A steady load without a broker: records of uniformly distributed keys as Arrow tables (record.RUN)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from benchmarks.rows.brokerless import TOPIC
from compactor.model.record import RUN

MINUTE_MS: Final = 60_000
_POOL_BYTES: Final = 1 << 20


class SteadyLoad(Struct, frozen=True, kw_only=True):
    """`records` records per minute over `keys` keys, each of which belongs to one of `partitions` partitions."""

    records: int
    keys: int
    partitions: int = 2
    value_bytes: int = 100

    @property
    def partition_records(self) -> int:
        """Records of one partition per minute."""
        return self.records // self.partitions

    def tables(self, minutes: int) -> Iterator[list[pa.Table]]:
        """Yields for each minute a list of tables, one a partition."""
        chance = np.random.default_rng(0)
        pool = chance.bytes(_POOL_BYTES + self.value_bytes)  # random bytes, which do not compress
        for minute in range(minutes):
            found: list[pa.Table] = []
            for partition in range(self.partitions):
                keys = chance.integers(0, self.keys // self.partitions, self.partition_records).tolist()
                starts = chance.integers(0, _POOL_BYTES, self.partition_records).tolist()
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
        }
        absent = {field.name: pa.nulls(size, field.type) for field in RUN if field.name not in columns}
        return pa.table({**columns, **absent}, schema=RUN)
