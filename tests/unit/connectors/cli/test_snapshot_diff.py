"""`keyfold snapshot diff`: two snapshots key by key, held against plain dicts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from connectors.errors import UsageError
from connectors.operations.snapshots import diff
from connectors.snapshot_folder import SnapshotFolder
from tests.support.cli import invoke
from tests.support.engine import Row, row
from tests.support.kept_snapshots import KeptSnapshots
from tests.support.typed_snapshots import TypedConnector

Record = tuple[Any, ...]
State = dict[tuple[int, bytes], Record]


def _rows(rng: random.Random, first: int, partitions: int) -> list[Row]:
    """Changes of some of 40 keys; many of them say again what was said."""
    made = []
    for partition in range(partitions):
        for offset in range(first, first + 60):
            key, value = b"k%d" % rng.randrange(40), rng.choice([None, b"1", b"2", b"3"])
            headers = rng.choice([[], [], [{"key": "h", "value": rng.choice([b"x", None])}]])
            made.append(row(partition, offset, key, value, headers=headers, timestamp=rng.choice([5, 5, 5, 6])))
    return made


def _state(rows: list[Row], before: State) -> State:
    after = dict(before)
    for each in rows:
        place = each["partition"], each["key"]
        after[place] = each["value"], json.dumps(each["headers"], default=repr), each["timestamp"]
    return {place: record for place, record in after.items() if record[0] is not None}


def _expected(old: State, new: State, partitions: int) -> set[tuple[str, int | None, bytes]]:
    changes = {**dict.fromkeys(new.keys() - old.keys(), "added"), **dict.fromkeys(old.keys() - new.keys(), "removed")}
    changes |= {place: "changed" for place in old.keys() & new.keys() if old[place] != new[place]}
    return {(change, place[0] if partitions > 1 else None, place[1]) for place, change in changes.items()}


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("bucket_bytes", [1 << 24, 400], ids=["one bucket", "many"])
@pytest.mark.parametrize("seed", range(2))
def test_a_diff_is_that_of_two_dicts(tmp_path: Path, seed: int, bucket_bytes: int, partitions: int) -> None:
    """Each key with its partition, in each direction, in however many buckets; nothing differs from itself."""
    rng = random.Random(seed)
    kept, rows = KeptSnapshots(tmp_path, partitions), [_rows(rng, start, partitions) for start in (0, 60)]
    old, new = [SnapshotFolder(kept.shelf.sub("c", "t"), kept.keep(some)) for some in rows]
    before = _state(rows[0], {})
    after = _state(rows[1], before)
    told: list[tuple[str, int | None, bytes]] = []
    said = diff.diff_snapshots(old, new, lambda *change: told.append(change), bucket_bytes=bucket_bytes)
    assert (len(told), set(told)) == (len(set(told)), _expected(before, after, partitions))
    counts = {name: sum(change[0] == name for change in told) for name in ("added", "changed", "removed")}
    assert {name: getattr(said, name) for name in counts} == counts
    assert said.same + said.changed + said.added == len(after)
    back = diff.diff_snapshots(new, old)
    assert (back.added, back.changed, back.removed) == (said.removed, said.changed, said.added)
    same = diff.diff_snapshots(new, new)
    assert (same.added, same.changed, same.removed, same.same) == (0, 0, 0, len(after))


@pytest.fixture
def kept(tmp_path: Path) -> KeptSnapshots:
    """Two snapshots: a is changed, b removed, c added, d as it was."""
    made = KeptSnapshots(tmp_path)
    made.keep([row(0, at, key, b"0") for at, key in enumerate((b"a", b"b", b"d"))])
    made.keep([row(0, 3, b"a", b"1"), row(0, 4, b"b", None), row(0, 5, b"c\xff", b"1")])
    return made


def test_counts_and_keys_are_said(kept: KeptSnapshots) -> None:
    """A sign and the key in a line; as JSON an object a line, the counts last."""
    said = invoke("snapshot", "diff", kept.connector, *kept.ids, "--keys", "--worker", kept.worker).stdout.splitlines()
    assert sorted(said[:3]) == ["+ c\\xff", "- b", "~ a"]
    assert [line.split() for line in said[4:8]] == [["added", "1"], ["changed", "1"], ["removed", "1"], ["same", "1"]]
    folders = [kept.topic / name for name in kept.ids]
    lines = invoke("snapshot", "diff", *folders, "--keys", "--json").stdout.splitlines()
    *changes, counts = map(json.loads, lines)
    assert {"change": "added", "partition": None, "key": {"base64": "Y/8="}} in changes
    assert counts == {
        "old": str(folders[0]),
        "new": str(folders[1]),
        "added": 1,
        "changed": 1,
        "removed": 1,
        "same": 1,
    }
    assert json.loads(invoke("snapshot", "diff", *folders, "--json").stdout) == counts


def test_snapshots_of_two_topics_are_named(kept: KeptSnapshots) -> None:
    """They are compared, as one may be a copy; stderr says that they are not of one topic."""
    folders = [kept.topic / name for name in kept.ids]
    assert invoke("snapshot", "diff", *folders).stderr == ""
    manifest = folders[1] / "_manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"topic": "u"}))
    assert "of two topics" in invoke("snapshot", "diff", *folders).stderr


@pytest.mark.parametrize("is_there", [True, False])
def test_a_damaged_file_is_named(kept: KeptSnapshots, is_there: bool) -> None:
    """Exit code 1, and the command that says more; the same of a file that is missing."""
    (data,) = (kept.topic / kept.ids[0] / "data").iterdir()
    data.write_bytes(b"PAR1" + b"?" * (data.stat().st_size - 8) + b"PAR1")
    if not is_there:
        data.unlink()
    result = invoke("snapshot", "diff", kept.connector, *kept.ids, "--worker", kept.worker)
    assert (result.exit_code, data.name in result.stderr) == (1, True)
    assert "keyfold snapshot verify" in result.stderr


def test_typed_columns_are_compared_by_name(tmp_path: Path) -> None:
    """A further column that is null changes nothing; nested values, NaN and wider numbers are compared as values."""
    typed = TypedConnector(tmp_path, {"value.converter": "keyfold.Json", "schemas.enable": "false"})
    values: list[list[dict[str, Any]]] = [
        [{"n": 1, "in": {"x": [1]}}, {"n": 2, "in": {"x": [1]}}, {"n": 3, "in": {"x": []}}],
        [{"n": 1, "in": {"x": [2]}}, {"n": 2, "in": {"x": [1]}, "more": "m"}],
    ]
    offset = 0
    for some in values:
        keyed = [(b"abc"[at : at + 1], value) for at, value in enumerate(some)]
        typed.fold([row(0, offset + at, key, json.dumps(value).encode()) for at, (key, value) in enumerate(keyed)])
        typed.take()
        offset += len(some)
    ids = sorted(path.name for path in (tmp_path / "snapshots/c/t").iterdir() if path.name.startswith("1970"))
    folders = [SnapshotFolder(typed.shelf.sub("c", "t"), name) for name in ids]
    told: list[tuple[Any, ...]] = []
    said = diff.diff_snapshots(folders[0], folders[1], lambda *change: told.append(change))
    assert (sorted(told), said.same) == ([("changed", None, b"a"), ("changed", None, b"b")], 1)
    bytes_of = KeptSnapshots(tmp_path / "other")
    other = SnapshotFolder(bytes_of.shelf.sub("c", "t"), bytes_of.keep([row(0, 0, b"a", b"1")]))
    with pytest.raises(UsageError, match="typed columns"):
        diff.diff_snapshots(folders[0], other)


def test_typed_keys_are_compared_whatever_fields_others_have(tmp_path: Path) -> None:
    """A further field of other keys is null in theirs; a date may be one that Python has not."""
    day = {"type": "int32", "field": "day", "name": "io.debezium.time.Date", "optional": True}
    value = json.dumps({"type": "struct", "fields": [day]})
    plain = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"}
    typed = TypedConnector(
        tmp_path,
        {**plain, "value.converter": "keyfold.Json", "value.converter.schema.content": value},
        key=True,
    )
    for offset, (key, number) in enumerate([(b'{"id":1}', 2**31 - 1), (b'{"id":2,"region":"eu"}', 1)]):
        typed.fold([row(0, offset, key, b'{"day":%d}' % number)])
        typed.take()
    taken = [path for path in (tmp_path / "snapshots/c/t").iterdir() if path.name.startswith("1970")]
    taken.sort(key=lambda path: path.stat().st_mtime_ns)  # both are of one second
    old, new = (SnapshotFolder(typed.shelf.sub("c", "t"), path.name) for path in taken)
    said = diff.diff_snapshots(old, new)
    assert (said.added, said.changed, said.removed, said.same) == (1, 0, 0, 1)
