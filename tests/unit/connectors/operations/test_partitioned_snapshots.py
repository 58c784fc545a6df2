"""A snapshot with partitions (`snapshot.partition.by`) is loaded, compared, verified, pinned and searched as any other.

Each test holds one against the snapshot of the same records without partitions.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connectors.bootstrap import open_table
from tests.support.cli import invoke, worker_file, write_json
from tests.support.engine import row
from tests.support.typed_snapshots import TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
DAY_MS = 86_400_000
MOVED, GONE, NEW = "key-of-1", "key-of-2", "key-of-99"
"""Keys that change their partition, go, and come between both snapshots."""


class Kept(NamedTuple):
    """A connector's files with two snapshots of its topic, which has partitions `by`."""

    by: str | None
    topic: Path
    connector: Path
    worker: Path
    ids: tuple[str, str]

    def asked(self, *words: object, exit_code: int = 0) -> Any:
        """Calls a command for its JSON."""
        result = invoke(*words, "--worker", self.worker, "--json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)


def _record(number: int, country: str | None) -> dict[str, Any]:
    value = json.dumps({"country": country, "n": number % 3, "said": f"value {number}"}).encode()
    return row(number % 2, number // 2, b"key-of-%d" % number, value, timestamp=number * DAY_MS)


def _kept(folder: Path, by: str | None) -> Kept:
    connector = TypedConnector(folder, PLAIN, partitions=2)
    if by is not None:
        connector.set(PLAIN, partitions=by)
    countries = ["DE", "a/b=c %é", None, "007", "DE"]
    connector.fold([_record(number, countries[number % 5]) for number in range(40)])
    ids = [connector.take().files[0].relative_to(folder / "snapshots" / "c" / "t").parts[0]]
    moved = {**_record(41, "moved"), "key": MOVED.encode()}
    connector.fold([moved, row(0, 20, GONE.encode(), None), {**_record(43, "DE"), "key": NEW.encode()}])
    ids.append(connector.take().files[0].relative_to(folder / "snapshots" / "c" / "t").parts[0])
    location = folder / "stores"
    location.mkdir()
    (folder / "store").rename(location / "c")  # as a worker has it
    settings = {"topics": "t", "snapshot.location": str(folder / "snapshots"), **PLAIN}
    file = write_json(folder / "c.json", {"name": "c", "connector.class": "keyfold.CompactedTopic", **settings})
    own = {"storage.location": str(location), "erasure.key.file": str(folder / "key.pem")}
    return Kept(by, folder / "snapshots" / "c" / "t", file, worker_file(folder, **own), (ids[0], ids[1]))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The snapshots without partitions."""
    return _kept(tmp_path_factory.mktemp("plain"), None)


@pytest.fixture(scope="module", params=["country, n", "day(_timestamp)"])
def parted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Those with partitions: by text with null and what folders escape, and by time."""
    return _kept(tmp_path_factory.mktemp("parted"), request.param)


def test_a_table_of_it_has_the_same_rows(plain: Kept, parted: Kept) -> None:
    """As a table of Arrow, as records, in DuckDB, and as lines of `keyfold bootstrap`."""
    tables = [open_table(str(each.topic)) for each in (plain, parted)]
    order = [("_partition", "ascending"), ("_offset", "ascending")]
    expected, rows = (table.arrow().sort_by(order) for table in tables)
    assert rows.equals(expected)
    assert len(rows) == 40
    records = [{(each.partition, each.key): each for each in table.records()} for table in tables]
    assert records[0] == records[1]
    assert tables[1].duckdb().aggregate("count(DISTINCT said)").fetchall() == [(40,)]
    lines = [invoke("bootstrap", each.topic, "--worker", each.worker).stdout.splitlines() for each in (plain, parted)]
    assert sorted(lines[0]) == sorted(lines[1])


def test_two_of_them_differ_as_those_without(plain: Kept, parted: Kept) -> None:
    """A key that has moved to another partition is changed, not removed and added; with and without are equal."""
    lines = []
    for kept in (plain, parted):
        result = invoke("snapshot", "diff", *(kept.topic / name for name in kept.ids), "--keys", "--json")
        assert result.exit_code == 0, result.output
        told = [json.loads(line) for line in result.stdout.splitlines()]
        lines.append(sorted(json.dumps({n: t for n, t in each.items() if n not in ("old", "new")}) for each in told))
    assert lines[0] == lines[1]
    newest = [kept.topic / kept.ids[1] for kept in (plain, parted)]
    both = json.loads(invoke("snapshot", "diff", *newest, "--json").stdout)
    assert {name: both[name] for name in ("added", "changed", "removed", "same")} == {
        "added": 0, "changed": 0, "removed": 0, "same": 40,
    }  # fmt: skip


def test_it_is_listed_shown_and_pinned(plain: Kept, parted: Kept) -> None:
    """With the same numbers; what it has partitions by is shown."""
    said = []
    for kept in (plain, parted):
        listed = kept.asked("snapshot", "list", kept.connector)
        said.append([[each[name] for name in ("topic", "state", "records", "format", "newest")] for each in listed])
    assert said[0] == said[1]
    shown = [kept.asked("snapshot", "show", kept.topic) for kept in (plain, parted)]
    assert shown[0]["manifest"]["source_offsets"] == shown[1]["manifest"]["source_offsets"]
    assert shown[1]["manifest"]["typed"]["partition_by"] == str(parted.by).split(", ")
    assert f"folders by {parted.by} " in " ".join(
        invoke("snapshot", "show", parted.topic, "--worker", parted.worker).stdout.split()
    )
    for command, pinned in (("pin", True), ("unpin", False)):
        parted.asked("snapshot", command, parted.connector, parted.ids[0])
        assert parted.asked("snapshot", "list", parted.connector)[0]["pinned"] is pinned


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _add(file: Path) -> None:
    file.with_name("more.parquet").write_bytes(file.read_bytes())


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Path.unlink, "It is missing."),
        (_cut, "bytes; the manifest says"),
        (_add, "The manifest does not name it"),
    ],
    ids=["missing", "shorter", "another"],
)
def test_verify_reads_every_partition(parted: Kept, harm: Any, said: str, tmp_path: Path) -> None:
    """Sound as it was written; a file that is not is named with its folder."""
    topic = Path(shutil.copytree(parted.topic, tmp_path / "t", symlinks=True))
    folders = [topic / name for name in parted.ids]
    sound = parted.asked("snapshot", "verify", *folders)
    assert [(each["records"], each["faults"]) for each in sound] == [(40, []), (40, [])]
    files = sorted((folders[1] / "data").rglob("*.parquet"))
    assert sound[1]["files"] == len(files) > 2
    harm(files[-1])
    first, second = parted.asked("snapshot", "verify", *folders, exit_code=1)
    assert first["faults"] == []
    (fault,) = second["faults"]
    folder = files[-1].parent.relative_to(folders[1])
    assert (Path(fault["file"]).parent, said in fault["fault"]) == (folder, True)


def test_an_erasure_finds_what_it_would_without(plain: Kept, parted: Kept) -> None:
    """The same values and tombstones, and the snapshots that go: those with a value of the key."""
    for key, gone in ((MOVED, (0, 1)), (GONE, (0,)), (NEW, (1,)), ("no-key-at-all", ())):
        shown = [kept.asked("erase", kept.connector, "--key", key, "--dry-run") for kept in (plain, parted)]
        for kept, each in zip((plain, parted), shown, strict=True):
            assert [snapshot["id"] for snapshot in each.pop("snapshots")] == [kept.ids[at] for at in gone]
        assert shown[0] == shown[1]
