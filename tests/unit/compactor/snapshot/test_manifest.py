from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from compactor.errors import FoldError, MissingFileError
from compactor.model.actions import AddSnapshot
from compactor.model.state import CatalogState
from compactor.settings import CompactionPolicy
from compactor.snapshot import manifest
from compactor.snapshot.data_files import TABLE
from compactor.snapshot.listing import expired
from compactor.snapshot.manifest import DataFile, Manifest
from compactor.snapshot.write import snapshot_id
from tests.support.memory.storage import MemoryStorage

FULL = Manifest(
    connector="c",
    catalog_id="cat",
    topic="t",
    output_topic="t.compacted",
    output_topic_id="o",
    created_at="2026-11-21T02:30:00.000Z",
    resume_safe_until=None,
    source_offsets=manifest.by_partition({10: 5, 2: 57}),
    output_offsets={"2": 12},
    records=10,
    tombstones_excluded=2,
    policy=manifest.named(CompactionPolicy(cleanup_policy=("compact", "delete"))),
    schema=manifest.columns(TABLE),
    files=(DataFile(path="data/a.parquet", bytes=1, sha256="x", records=10),),
)


def test_a_manifest_reads_as_it_was_written() -> None:
    """Writing and reading gives the same manifest, its fields in the order of the format's description."""
    data = manifest.encode(FULL)
    assert manifest.decode(data) == FULL
    found = json.loads(data)
    assert list(found)[:7] == [
        "format_version",
        "connector",
        "catalog_id",
        "topic",
        "output_topic",
        "output_topic_id",
        "isolation_level",
    ]
    assert list(found["source_offsets"]) == ["2", "10"]
    assert found["policy"]["cleanup.policy"] == "compact,delete"
    assert data.startswith(b'{\n  "format_version": 1')


def test_another_order_is_named() -> None:
    """Readers learn which record of a key won (compaction.order); without one the field is not there."""
    assert "order" not in json.loads(manifest.encode(FULL))
    named = replace(FULL, order="header:version")
    assert json.loads(manifest.encode(named))["order"] == "header:version"
    assert manifest.decode(manifest.encode(named)) == named


@pytest.mark.parametrize("name", manifest.NAMES)
def test_a_manifest_is_read_by_its_old_name_too(name: str) -> None:
    """`manifest.json`, as older snapshots have it, without the id of a catalog."""
    shelf, old = MemoryStorage(), replace(FULL, catalog_id=None)
    assert manifest.path_of(shelf, "c/t/1") is None
    with pytest.raises(MissingFileError):
        manifest.read(shelf, "c/t/1")
    told = {key: value for key, value in json.loads(manifest.encode(old)).items() if key != "catalog_id"}
    shelf.write(f"c/t/1/{name}", json.dumps(told).encode())
    assert manifest.read(shelf, "c/t/1") == old


@pytest.mark.parametrize("data", [b"{", b"{}", manifest.encode(replace(FULL, format_version=3))])
def test_a_damaged_or_later_manifest_is_refused(data: bytes) -> None:
    """Nobody works from a manifest that cannot be understood."""
    with pytest.raises(FoldError):
        manifest.decode(data)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_228_200_123, "2026-11-21T02:30:00.123Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, None),
        (2**63 - 1, None),
    ],
)
def test_times_are_utc(ms: int | None, text: str | None) -> None:
    """Times are ISO 8601 in UTC to the ms; none is said beyond the calendar."""
    assert manifest.iso(ms) == text


@pytest.mark.parametrize(("keep", "gone"), [(1, ["c", "a"]), (2, ["c"]), (3, []), (0, ["c", "a"]), (9, [])])
def test_the_newest_snapshots_are_kept(keep: int, gone: list[str]) -> None:
    """All but the `keep` that were committed last go, whatever the clock said; one always stays."""
    taken = [
        AddSnapshot(topic=topic, id=name, path="", created_ms=at, source_offsets={}, records=0, bytes=0)
        for topic, name, at in [("t", "c", 3), ("t", "a", 1), ("u", "z", 0), ("t", "b", 2)]
    ]
    assert [one.id for one in expired(CatalogState(snapshots=tuple(taken)), "t", keep)] == gone


def test_what_is_repeated_goes_before_what_is_not() -> None:
    """A topic that stands still, of which a snapshot is taken again and again, keeps those of other moments."""
    taken = [
        AddSnapshot(topic="t", id=name, path="", created_ms=at, source_offsets={"0": end}, records=9, bytes=0)
        for at, (name, end) in enumerate([("old", 1), ("a", 2), ("b", 2), ("c", 2), ("d", 2)])
    ]
    state = CatalogState(snapshots=tuple(taken))
    assert [one.id for one in expired(state, "t", 4)] == ["a"]
    assert [one.id for one in expired(state, "t", 3)] == ["a", "b"]
    assert [one.id for one in expired(state, "t", 2)] == ["old", "a", "b"]
    assert [one.id for one in expired(state, "t", 1)] == ["old", "a", "b", "c"]


def test_a_snapshots_name_is_its_time() -> None:
    """Names sort by time."""
    assert snapshot_id(1_795_228_200_123, "ab12") == "20261121T023000Z-ab12"
