"""Other encodings of a survivor's key are found below what is sent, and only looked for where there may be any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.errors import DamagedFileError
from compactor.fold.memory_budget import TOGETHER
from compactor.model.log import PartitionLog, RunFile
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import RUN, TopicPartition
from compactor.model.state import CatalogState
from compactor.publish import retired
from compactor.publish.retired import RETIRED, EarlierKeys, earlier_ranges
from compactor.runs import writer
from compactor.runs.file_stats import level0_run
from compactor.runs.reader import read_file_range
from compactor.runs.scan import between
from compactor.runs.writer import INDEXED_GROUP_BYTES, RunTarget
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, log_of, new_state, row, with_range_reports

TP = TopicPartition("t", 0)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def keyed(offset: int, key: bytes, identity: bytes | None, encoding: str | None) -> Row:
    return row(0, offset, key, b"v", key_identity=identity, key_encoding=encoding)


def log(
    storage: LocalStorage, *batches: Sequence[Row], identity: str = "json", is_indexed: bool = False
) -> CatalogState:
    """Returns the state of a connector with these micro-batches, one file each."""
    state, end = replace(new_state({0: 0}), identity=identity), 0
    for rows in batches:
        last = rows[-1]["offset"] + 1
        state = ingested(storage, state, [with_range_reports(rows, {0: (end, last)})], is_indexed=is_indexed)
        end = last
    return state


def target(start: int, end: int, output: str | None = "out") -> PublishTarget:
    return PublishTarget(topic="t", partition=0, bucket=0, output=output, start=start, end=end)


ONE = [keyed(0, b"A", b"a", "large"), keyed(1, b"B", b"b", "large")]
SAME = [keyed(2, b"C", b"c", "large")]
OTHER = [keyed(2, b"a", None, "small"), keyed(3, b"C", b"c", "large")]
ODD = [keyed(2, b"Aa", b"a", None)]
REFUSED = [keyed(2, b"A", b"a", "large"), row(0, 3, b"?", b"v", rejected="no JSON")]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(SAME, False), (OTHER, True), (ODD, True), (REFUSED, False)],
    ids=["one encoding", "two encodings", "an unknown encoding", "what was rejected has none"],
)
def test_nothing_is_looked_for_where_all_keys_are_encoded_in_one_way(
    storage: LocalStorage, rows: list[Row], expected: bool
) -> None:
    """Then two keys of one identity are the same bytes; the catalog tells, without a look into files."""
    state = log(storage, ONE, rows)
    assert (TP in earlier_ranges(state, [target(2, rows[-1]["offset"] + 1)])) is expected


def test_nothing_is_looked_for_where_there_is_nothing(storage: LocalStorage) -> None:
    """A first publish, one that commits its position again, one without output, keys compared by their bytes."""
    state = log(storage, ONE, OTHER)
    assert TP in earlier_ranges(state, [target(2, 4)])
    for none in (target(0, 4), target(4, 4), target(2, 4, output=None)):
        assert earlier_ranges(state, [none]) == {}
    assert earlier_ranges(replace(state, identity="key"), [target(2, 4)]) == {}


def of_before(file: RunFile) -> RunFile:
    """Returns a file as an older version has named it."""
    return replace(file, key_encodings=None)


def test_files_of_older_versions_say_nothing_of_encodings(storage: LocalStorage) -> None:
    """So they are read."""
    state = log(storage, ONE, SAME)
    old = [replace(run, files=tuple(map(of_before, run.files))) for run in log_of(state).runs]
    state = replace(state, logs=(replace(log_of(state), runs=tuple(old)),))
    assert TP in earlier_ranges(state, [target(2, 3)])


def test_a_file_names_few_encodings(storage: LocalStorage) -> None:
    """Of many it says that it does not know."""
    many = [keyed(at, b"k%d" % at, b"k", f"e{at}") for at in range(9)]
    runs = log_of(log(storage, many[:8], [keyed(8, b"x", None, "e9")])).runs
    assert [run.files[0].key_encodings for run in runs] == ["e0,e1,e2,e3,e4,e5,e6,e7", "e9"]
    assert log_of(log(storage, many)).runs[0].files[0].key_encodings is None


def survivors(*rows: Row) -> pa.RecordBatch:
    """Returns what a fold has left, as a publish task gets it."""
    return pa.RecordBatch.from_pylist([{"delete_horizon": None, "rejected": None, **one} for one in rows], schema=RUN)


def whole(storage: LocalStorage, state: CatalogState, start: int, end: int) -> EarlierKeys:
    found: PartitionLog = log_of(state)
    return EarlierKeys(storage, {TP: (between(found, start, end),)})


def test_each_record_retires_the_other_keys_of_its_identity(storage: LocalStorage) -> None:
    """Its own is not among them, nor those of rejected records, nor those of a partition that is not looked into."""
    early = [*ONE, keyed(2, b"aA", b"a", None), keyed(3, b"A", b"a", "large"), row(0, 4, b"a", b"v", rejected="r")]
    earlier = whole(storage, log(storage, early), 0, 5)
    sent = survivors(
        keyed(5, b"Aa", b"a", None),
        keyed(6, b"B", b"b", "large"),
        keyed(7, b"c", None, "small"),
        {**keyed(8, b"a", None, "small"), "rejected": "r"},
        {**keyed(9, b"a", None, "small"), "partition": 1},
    )
    (found,) = earlier.with_retired(iter([sent]))
    assert found.drop_columns([RETIRED]).equals(sent)
    assert found[RETIRED].to_pylist() == [[b"A", b"aA"], None, None, None, None]


def test_keys_are_looked_for_once_for_many_records(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are held at a time; batches keep their order and size."""
    state = log(storage, [keyed(at, b"K%d" % at, b"k%d" % at, "large") for at in range(6)])
    earlier = replace(whole(storage, state, 0, 6), together=replace(TOGETHER, records=2))
    batches = [survivors(keyed(at, b"k%d" % (at - 6), None, "small")) for at in range(6, 12)]
    reading = Mock(side_effect=read_file_range)
    monkeypatch.setattr(retired, "read_file_range", reading)
    found = list(earlier.with_retired(iter(batches)))
    assert [one[RETIRED].to_pylist() for one in found] == [[[b"K%d" % at]] for at in range(6)]
    assert reading.call_count == 2


@pytest.mark.parametrize("way", ["index", "no index", "a lost index", "a damaged index", "a hot key"])
def test_an_index_tells_the_same_as_all_keys(storage: LocalStorage, way: str) -> None:
    """Also of keys that it has many times, and in several encodings; it reads no file that has none of them."""
    spellings = [keyed(at, b"K%d" % (at % 50), b"k%d" % (at % 50), "large") for at in range(100)]
    others = [keyed(100 + at, b"kK%d" % at, b"k%d" % at, None) for at in range(40)]
    again = [keyed(140 + at, b"X", b"x", "large") for at in range(40_000 if way == "a hot key" else 20)]
    state = log(storage, spellings, others, again, is_indexed=way != "no index")
    files = [run.files[0] for run in log_of(state).runs]
    path = files[0].index_path
    assert (path is None) is (way == "no index")
    if way == "a lost index":
        Path(storage.location, str(path)).unlink()
    if way == "a damaged index":
        Path(storage.location, str(path)).write_bytes(b"0" * Path(storage.location, str(path)).stat().st_size)
    if way == "index":
        Path(storage.location, files[2].path).unlink()
    end = log_of(state).end
    sent = survivors(
        *(keyed(end + at, b"k%d" % at, None, "small") for at in range(35, 60)),
        *([keyed(end + 99, b"x", None, "small")] if way == "a hot key" else []),
    )
    (found,) = whole(storage, state, 10, end).with_retired(iter([sent]))
    some = [[b"K%d" % at, b"kK%d" % at] if at < 40 else [b"K%d" % at] if at < 50 else None for at in range(35, 60)]
    assert found[RETIRED].to_pylist() == [*some, *([[b"X"]] if way == "a hot key" else [])]


def test_of_a_large_file_the_records_of_few_keys_are_read(storage: LocalStorage) -> None:
    """Those of each encoding, and no others with their hash; what was rejected is not among them."""
    large = [
        {**keyed(at, b"K%d" % (at % 2_000), b"k%d" % (at % 2_000), "large"), "value": bytes(2_000)}
        for at in range(2_500)
    ]
    large[700]["rejected"] = "no JSON"
    state = log(storage, large, is_indexed=True)
    (file,) = log_of(state).runs[0].files
    assert file.bytes > 3 * INDEXED_GROUP_BYTES
    asked = {400: [b"K400"], 700: None, 1_999: [b"K1999"], 2_400: None}
    sent = survivors(*(keyed(9_000 + at, b"x", b"k%d" % at, "small") for at in asked))
    assert retired_by(whole(storage, state, 0, 2_500), sent) == list(asked.values())
    assert retired_by(whole(storage, state, 500, 1_000), sent) == [None] * 4


@pytest.mark.parametrize("is_hit", [True, False])
def test_a_publish_verifies_the_row_groups_that_it_decodes(storage: LocalStorage, is_hit: bool) -> None:
    """Not all of a large file, which would take longer the more keys are kept: damage elsewhere in it is not met.

    However many keys it looks for there: it is read as a whole only if many of its row groups have some.
    """
    keys = [{**keyed(at, b"K%d" % at, b"k%d" % at, "large"), "value": bytes(20_000)} for at in range(60)]
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1 << 27, is_indexed=True, has_identities=True)
    (part,) = writer.write([survivors(*keys)], target, "clean.write")
    log = replace(log_of(new_state({0: 0})), end=60, runs=(level0_run(0, 60, [part], 0),))
    file = Path(storage.location, part.file.path)
    file.write_bytes(file.read_bytes()[:10] + b"??" + file.read_bytes()[12:])
    earlier = EarlierKeys(storage, {TP: (between(log, 0, 60),)})
    asked = [1] if is_hit else [*range(52, 60)]
    sent = survivors(*(keyed(70 + at, b"x", b"k%d" % at, "small") for at in asked))
    if is_hit:
        with pytest.raises(DamagedFileError, match="not what was written"):
            retired_by(earlier, sent)
    else:
        assert retired_by(earlier, sent) == [[b"K%d" % at] for at in asked]


def retired_by(earlier: EarlierKeys, sent: pa.RecordBatch) -> list[list[bytes] | None]:
    (batch,) = earlier.with_retired(iter([sent]))
    return batch[RETIRED].to_pylist()


def test_without_ranges_records_pass_as_they_are(storage: LocalStorage) -> None:
    """No column, no copy."""
    sent = survivors(keyed(5, b"A", b"a", "large"))
    (found,) = EarlierKeys(storage, {}).with_retired(iter([sent]))
    assert found is sent
