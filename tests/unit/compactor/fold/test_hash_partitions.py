"""Hashes of keys, and the partitions that they make."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pandas.util import hash_array

from compactor.fold.offset_map import BITS, HASH_PARTITIONS, hash_partitions_of
from compactor.model.key_hash import PIECE, hash_of, hashes_of

KEYS = pa.array([None, b"", b"\x00", b"\x00\x00", b"a", b"ab", b"\xff\xfe", b"k" * 1_000], pa.binary())


def hashed(keys: pa.Array | pa.ChunkedArray, log: int = 0, piece: int = PIECE) -> NDArray[np.uint64]:
    return hashes_of(keys, pa.array(np.full(len(keys), log, np.int32)), piece)


def test_a_keys_hash_is_the_same_wherever_it_stands() -> None:
    """In one piece with others or not, in a slice, in chunks; as a null too."""
    keys = pa.array([b"%d" % (at % 7) for at in range(100)] + [None], pa.binary())
    whole = hashed(keys)
    assert hashed(keys.slice(9, 30)).tolist() == whole[9:39].tolist()
    assert hashed(pa.chunked_array([keys.slice(0, 40), keys.slice(40, 0), keys.slice(40)])).tolist() == whole.tolist()
    assert hashed(keys, piece=9).tolist() == whole.tolist()
    assert whole[:7].tolist() == whole[7:14].tolist()


def test_keys_that_differ_little_differ_in_their_hashes() -> None:
    """Null, the empty key, and keys that begin alike; the same key of another log too."""
    assert len({*hashed(KEYS).tolist(), *hashed(KEYS, log=1).tolist()}) == 2 * len(KEYS)
    assert len(hashed(KEYS.slice(0, 0))) == 0


def test_another_process_finds_the_same_hashes() -> None:
    """Whatever its seed of Python's own hashes: what was seen once is seen again."""
    command = (
        "import numpy as np, pyarrow as pa\n"
        "from compactor.model.key_hash import hashes_of\n"
        "print(*hashes_of(pa.array([b'%d' % at for at in range(9)]), pa.array(np.zeros(9, np.int32))))"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(one) for one in hashed(pa.array([b"%d" % at for at in range(9)]))]


@pytest.mark.parametrize("key", [b"%d", b"customer-%012d", b"%d" + b"-" * 100], ids=["short", "usual", "long"])
@pytest.mark.parametrize("level", [0, 1, 3])
def test_keys_are_spread_evenly(key: bytes, level: int) -> None:
    """Every hash partition of every level has its share, of keys that were numbered one after the other too."""
    count = 32_000
    found = np.bincount(
        hash_partitions_of(hashed(pa.array([key % at for at in range(count)])), level), minlength=HASH_PARTITIONS
    )
    assert len(found) == HASH_PARTITIONS
    assert np.abs(found - count / HASH_PARTITIONS).max() < 6 * (count / HASH_PARTITIONS) ** 0.5


def test_a_level_tells_apart_what_the_one_before_did_not() -> None:
    """Keys of one hash partition are spread over all of the next level."""
    hashes = hashed(pa.array([b"%d" % at for at in range(10_000)]))
    of_one = hashes[hash_partitions_of(hashes, 0) == 5]
    assert {*hash_partitions_of(of_one, 1).tolist()} == {*range(HASH_PARTITIONS)}
    assert HASH_PARTITIONS == 1 << BITS


@given(st.binary(max_size=40) | st.none())
def test_few_keys_are_hashed_without_pandas_to_the_same(key: bytes | None) -> None:
    """Index files are read by commands that do not load pandas' hash for a key."""
    assert hash_of(key) == hash_array(np.array([key], object), categorize=False)[0]


def test_the_hash_of_a_key_never_changes() -> None:
    """Index files hold it: those of before have to be read."""
    expected = [1760245841805064774, 13950350942979735504, 10157453247413853161]
    assert [hash_of(key) for key in (b"", b"a", b"customer-1")] == expected
    assert hashed(pa.array([b"", b"a", b"customer-1"], pa.binary())).tolist() == expected
