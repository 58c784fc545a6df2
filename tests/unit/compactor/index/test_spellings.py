"""Other spellings of a key's identity in index files on a disk, few asked for and many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from compactor.index.blocks import ENTRIES
from compactor.index.builder import IndexBuilder
from compactor.index.reader import AskedKeys, KnownIndexes, all_offsets
from compactor.index.section import IndexSection
from compactor.model import record
from compactor.model.record import TopicPartition
from compactor.storage.local import LocalStorage
from tests.support.engine import row

FIRST = 5
WIDE = 1 << 33
"""Offsets that are so far from one another that each takes eight bytes."""


@pytest.mark.parametrize("has_spellings", [True, False])
@pytest.mark.parametrize("far", [0, WIDE])
@pytest.mark.parametrize("identities", [1, 700, 4 * ENTRIES + 1])
def test_other_spellings_are_told_however_many_keys_are_asked_for(
    tmp_path: Path, identities: int, far: int, *, has_spellings: bool
) -> None:
    """Blocks are looked through one by one, or together if many keys are asked for; the last has an odd number."""
    kept = [(b"%d" % number, b"%d%c" % (number, 97 + at)) for number in range(identities) for at in range(number % 3)]
    kept += [(b"hot", b"hot-%d" % (number % 2)) for number in range(2 * ENTRIES + 1)] if identities > 1 else []
    kept.append((b"last", b"last"))
    offsets = [*range(FIRST, FIRST + len(kept) - 1), FIRST + len(kept) - 1 + far]
    storage = LocalStorage(str(tmp_path))
    (section,) = _written(storage, kept, offsets, has_spellings=has_spellings).values()
    for step in (1, 7, 400):
        asked = [(b"%d" % number, b"%da" % number) for number in range(0, identities + 3, step)]
        asked += [(b"hot", b"hot-0"), (b"last", b"last"), (b"absent", b"absent")]
        keys, spelled = (pa.array(column, pa.binary()) for column in zip(*asked, strict=True))
        told = all_offsets(storage, section, AskedKeys(keys), 0, 1 << 62, KnownIndexes(), other_than=spelled)
        own = dict(asked)
        others = [
            offset
            for (identity, key), offset in zip(kept, offsets, strict=True)
            if identity in own and not (has_spellings and own[identity] == key)
        ]
        assert told is not None
        assert told.tolist() == others


def _written(
    storage: LocalStorage, kept: Sequence[tuple[bytes, bytes]], offsets: Sequence[int], *, has_spellings: bool
) -> dict[TopicPartition, IndexSection]:
    builder = IndexBuilder(has_spellings=has_spellings)
    rows = [row(0, at, key, b"", key_identity=of) for (of, key), at in zip(kept, offsets, strict=True)]
    builder.add(TopicPartition("t", 0), pa.RecordBatch.from_pylist(rows, schema=record.RUN))
    return dict(builder.write(storage, "runs/1.index"))
