"""Keys by classes of their hashes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.fold import keyclasses
from compactor.fold.keyclasses import HashPartition, hashes_of


def test_a_keys_hash_is_the_same_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece with others or not, as a null too."""
    keys = pa.array([b"%d" % (at % 7) for at in range(100)] + [None], pa.binary())
    whole = hashes_of(keys)
    monkeypatch.setattr(keyclasses, "_PIECE", 9)
    assert hashes_of(keys).tolist() == whole.tolist()
    assert whole[:7].tolist() == whole[7:14].tolist()
    assert len(set(whole[:7].tolist())) > 1


def test_halves_have_every_key_and_none_in_common() -> None:
    """However often a class is halved: what is in one is in no other."""
    hashes = hashes_of(pa.array([b"%d" % at for at in range(1_000)]))
    classes = [HashPartition()]
    for _ in range(3):
        classes = [half for one in classes for half in one.halves()]
    found = [row for one in classes for row, own in enumerate(one.among(hashes).to_pylist()) if own]
    assert sorted(found) == list(range(1_000))
