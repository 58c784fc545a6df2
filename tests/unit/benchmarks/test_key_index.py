"""The row of the key index, with few keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.rows.key_index import build, keys_of, look_up


def test_each_number_has_a_key_of_its_own() -> None:
    """Of sixteen hexadecimal digits, so that `keyfold get` takes it as text."""
    keys = keys_of(np.arange(3)).to_pylist()
    assert (len(set(keys)), {len(key) for key in keys}) == (3, {16})
    assert keys[1] == (0x9E3779B97F4A7C15).to_bytes(8, "little").hex().encode()


def test_keys_are_looked_up_in_what_was_built(tmp_path: Path) -> None:
    """By the index alone, and with their records; twelve bytes a key and a directory."""
    assert 12 < build(tmp_path, 2_000)["bytes a key"] < 13
    for with_records in (False, True):
        assert look_up(tmp_path, 2_000, 20, with_records=with_records)["warm, s"] > 0
