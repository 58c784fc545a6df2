"""A key's partition, as Kafka's default partitioner gives it."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from connectors.sinks.partitioner import murmur2, partitions_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafka_s_own_test(key: bytes, expected: int) -> None:
    """`UtilsTest.testMurmur2` of Apache Kafka has these keys and hashes."""
    assert murmur2(pa.array([key], pa.binary())).view(np.int32).tolist() == [expected]


def test_keys_of_any_length_together_have_the_hash_that_each_has_alone() -> None:
    """Words of short keys are hashed together, long keys one by one; a slice of an array is its own keys."""
    chance = Random(1)
    keys = [
        chance.randbytes(chance.choice((0, 1, 2, 3, 4, 5, 7, 8, 31, 255, 256, 257, 300, 5_000))) for _ in range(300)
    ]
    together = murmur2(pa.array([b"before", *keys], pa.binary()).slice(1))
    assert together.tolist() == [_murmur2(key) for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), 7).tolist() == [(_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]


def test_no_key_has_no_hash() -> None:
    """Of nothing comes nothing."""
    assert partitions_of(pa.array([], pa.binary()), 3).tolist() == []


def _murmur2(data: bytes) -> int:
    """`Utils.murmur2`, byte by byte."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) // 4 * 4, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)
