"""`keyfold snapshot list`, `show`, `verify`, `pin` and `unpin`, on real snapshots in a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compactor.snapshot import pins
from compactor.storage.local import LocalStorage
from connectors.operations.snapshots.diff import diff_snapshots
from connectors.operations.snapshots.verify import verify_snapshot
from connectors.snapshot_folder import SnapshotFolder
from tests.support.cli import ROOT, invoke
from tests.support.engine import row
from tests.support.kept_snapshots import KeptSnapshots
from tests.support.typed_snapshots import TypedConnector


@pytest.fixture
def kept(tmp_path: Path) -> KeptSnapshots:
    """A connector with two snapshots."""
    made = KeptSnapshots(tmp_path)
    made.keep([row(0, 0, b"a", b"0"), row(0, 1, b"b", b"1")])
    made.keep([row(0, 2, b"a", b"2"), row(0, 3, b"c", b"3"), row(0, 4, b"b", None)])
    return made


def _json(*arguments: object, exit_code: int = 0) -> Any:
    result = invoke("snapshot", *arguments, "--json")
    assert result.exit_code == exit_code, result.stderr
    return json.loads(result.stdout)


def test_list_has_what_each_holds(kept: KeptSnapshots) -> None:
    """When it was taken, records, bytes and format; which is the newest, and which is pinned."""
    first, second = kept.ids
    pins.pin(kept.shelf, f"c/t/{first}", 0)
    older, newer = _json("list", kept.connector, "--worker", kept.worker)
    said = {"topic": "t", "state": "complete", "records": 2, "format": "bytes", "mode": "latest"}
    assert {**older, **said, "id": first, "pinned": True, "newest": False} == older
    assert {**newer, **said, "id": second, "pinned": False, "newest": True} == newer
    assert newer["path"] == str(kept.topic / second)
    size = sum(path.stat().st_size for path in (kept.topic / second / "data").iterdir())
    assert newer["bytes"] == size
    lines = invoke("snapshot", "list", kept.connector, "--worker", kept.worker).stdout.splitlines()
    assert lines[1].split()[:5] == ["t", first, older["taken"], "2", f"{older['bytes']:,}"]
    assert ["pinned" in line for line in lines[1:3]] == [True, False]
    assert ["newest" in line for line in lines[1:3]] == [False, True]


def test_list_has_those_that_nobody_can_read(kept: KeptSnapshots) -> None:
    """What has no manifest is incomplete, a damaged one unreadable; what goes is said to go."""
    first, second = kept.ids
    (kept.topic / first / "_manifest.json").unlink()
    (kept.topic / second / "_manifest.json").write_text("{")
    listed = _json("list", kept.connector, "--worker", kept.worker)
    assert [each["state"] for each in listed] == ["incomplete", "unreadable"]
    pins.begin_removal(kept.shelf, f"c/t/{first}")
    assert _json("list", kept.connector, "--worker", kept.worker)[0]["state"] == "being removed"


def test_list_of_nothing_says_so(tmp_path: Path) -> None:
    """A sentence for people, an empty list for programs."""
    kept = KeptSnapshots(tmp_path)
    assert "There are no snapshots in" in invoke("snapshot", "list", kept.connector, "--worker", kept.worker).stdout
    assert _json("list", kept.connector, "--worker", kept.worker) == []


@pytest.mark.parametrize("name", ["id", "topic", "nothing", "folder", "data", "current", "topic's folder", "url"])
def test_show_takes_every_name_of_a_snapshot(kept: KeptSnapshots, name: str) -> None:
    """Its id, topic or nothing after a connector file; else its folder, what leads there, or its topic's folder."""
    newest = kept.ids[-1]
    places = {"folder": newest, "data": f"{newest}/data", "current": "current", "topic's folder": "."}
    of_connector = {"id": newest, "topic": "t"}.get(name)
    where = (kept.topic / places.get(name, newest)).as_posix()
    named: list[object] = [kept.connector, *filter(None, [of_connector])]
    if of_connector is None and name != "nothing":
        named = [f"file://{where}" if name == "url" else where]
    shown = _json("show", *named, "--worker", kept.worker)
    assert (shown["id"], shown["newest"], shown["manifest"]["source_offsets"]) == (newest, True, {"0": 5})


def test_show_is_for_people(kept: KeptSnapshots) -> None:
    """What it holds, the offsets to go on from, and its columns."""
    shown = invoke("snapshot", "show", kept.topic, "--worker", kept.worker).stdout
    assert f"Snapshot {kept.ids[-1]} of topic t, connector c" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["records", "2;", "tombstones", "left", "out:", "1"] in lines
    assert ["0", "5", "1,005", "1"] in lines
    assert ["key", "binary"] in lines


def test_show_says_what_is_odd_of_typed_columns(tmp_path: Path) -> None:
    """The converters, which field a renamed column is, how many values fit no column, and why the first does not."""
    settings = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
    connector = TypedConnector(tmp_path, settings)
    values = [b'{"n":1,"N":2}', b'{"n":3,"N":4}', b'{"n":"odd"}', b"{"]
    connector.fold([row(0, at, b"k%d" % at, value) for at, value in enumerate(values)])
    folder = connector.take().files[0].parents[1]
    shown = [" ".join(line.split()) for line in invoke("snapshot", "show", folder).stdout.splitlines()]
    assert "converters value keyfold.Json" in shown
    assert "renamed N_2 is the field N" in shown
    assert "in _rest 2 values that fit no column" in shown
    assert "the first partition 0, offset 2: n: a str does not fit a column of int64." in shown
    (verified,) = _json("verify", folder)
    assert (verified["topic"], verified["faults"]) == ("t", [])


@pytest.mark.parametrize("name", ["20200101T000000Z-ffffff", "nothing"])
def test_what_is_not_there_is_said(kept: KeptSnapshots, name: str) -> None:
    """By id, by topic and by folder: exit code 2, and the command that lists what there is."""
    for named in ((kept.connector, name), (kept.topic / name,)):
        result = invoke("snapshot", "show", *named, "--worker", kept.worker)
        assert result.exit_code == 2
        assert "keyfold snapshot list" in result.stderr


def test_one_snapshot_is_shown_at_a_time(kept: KeptSnapshots) -> None:
    """Two are a mistake, and so is a connector file alone if it has two topics."""
    kept.shelf.sub("c", "u", kept.ids[0]).write("_manifest.json", b"{}")
    for named in ((kept.connector,), (kept.connector, *kept.ids)):
        result = invoke("snapshot", "show", *named, "--worker", kept.worker)
        assert (result.exit_code, "takes 1" in result.stderr) == (2, True)


def test_verify_reads_all_snapshots_of_a_connector(kept: KeptSnapshots) -> None:
    """Exit code 0 if all are sound; without a worker file too if they are named by their folders."""
    verified = _json("verify", kept.connector, "--worker", kept.worker)
    assert [(each["id"], each["records"], each["faults"]) for each in verified] == [(name, 2, []) for name in kept.ids]
    assert len(_json("verify", *(kept.topic / name for name in kept.ids))) == 2


def _cut(data: Path) -> None:
    data.write_bytes(data.read_bytes()[:-1])


def _flip(data: Path) -> None:
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)


def _add(data: Path) -> None:
    data.with_name("more.parquet").write_bytes(data.read_bytes())


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Path.unlink, "It is missing."),
        (_cut, "bytes; the manifest says"),
        (_flip, "Its checksum is not the manifest's"),
        (_add, "The manifest does not name it"),
    ],
    ids=["missing", "shorter", "changed", "another"],
)
def test_verify_names_the_file_that_is_not_what_was_written(kept: KeptSnapshots, harm: Any, said: str) -> None:
    """Exit code 1, the file by its path, and what is wrong with it; the other snapshot is sound."""
    (data,) = (kept.topic / kept.ids[0] / "data").iterdir()
    harm(data)
    result = invoke("snapshot", "verify", kept.connector, "--worker", kept.worker)
    assert result.exit_code == 1
    assert said in result.stdout
    assert str(kept.topic / kept.ids[0] / "data") in result.stdout
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:3]] == ["DAMAGED", "sound"]
    assert "next: " in result.stderr


@pytest.mark.parametrize(("field", "said"), [("records", "records"), ("files", "in its files")])
def test_verify_counts_records(kept: KeptSnapshots, field: str, said: str) -> None:
    """Of each file, and all together, with what the manifest says."""
    path = kept.topic / kept.ids[0] / "_manifest.json"
    content = json.loads(path.read_text())
    content["files"][0]["records"] += 1
    if field == "records":
        content["records"] += 1
    path.write_text(json.dumps(content))
    (verified,) = _json("verify", kept.topic / kept.ids[0], exit_code=1)
    assert any(said in fault["fault"] for fault in verified["faults"])


def test_a_manifest_leads_nowhere_else(kept: KeptSnapshots) -> None:
    """It may have been written by others: no file outside the snapshot is read."""
    path = kept.topic / kept.ids[0] / "_manifest.json"
    path.write_text(path.read_text().replace("data/", "../data/"))
    (verified,) = _json("verify", kept.topic / kept.ids[0], exit_code=1)
    assert verified["faults"][0]["fault"] == "It is missing."


def test_what_is_read_is_told(kept: KeptSnapshots) -> None:
    """Verify and diff tell the bytes of each file that they have read: stderr has a line for each GiB of them."""
    folders = [SnapshotFolder(LocalStorage(str(kept.topic)), name) for name in kept.ids]
    sizes = [file.bytes for folder in folders for file in folder.manifest().files]
    told: list[int] = []
    for folder in folders:
        verify_snapshot(folder, told.append)
    diff_snapshots(folders[0], folders[1], read=told.append)
    assert told == [*sizes, *sizes]


def test_pin_and_unpin(kept: KeptSnapshots) -> None:
    """They say what is so now, and whether it was so before."""
    first, second = kept.ids
    named = kept.connector, first, "--worker", kept.worker
    assert [each["changed"] for each in _json("pin", *named) + _json("pin", *named)] == [True, False]
    assert [each["pinned"] for each in _json("list", kept.connector, "--worker", kept.worker)] == [True, False]
    assert _json("show", kept.topic / first)["pinned_at"] is not None
    assert "is pinned." in invoke("snapshot", "pin", kept.topic / second).stdout
    assert "is unpinned." in invoke("snapshot", "unpin", *named).stdout
    assert "was unpinned already." in invoke("snapshot", "unpin", *named).stdout


@pytest.mark.parametrize("command", ["pin", "unpin"])
def test_no_snapshot_is_pinned_without_a_name(kept: KeptSnapshots, command: str) -> None:
    """A connector file alone names none: all of them would keep, or lose, what an operator has pinned."""
    result = invoke("snapshot", command, kept.connector, "--worker", kept.worker)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No snapshot is named" in str(result.exception) + result.stderr


def test_only_a_complete_snapshot_is_pinned(kept: KeptSnapshots) -> None:
    """One without a manifest is refused, and one that is being removed."""
    first, second = kept.ids
    (kept.topic / first / "_manifest.json").unlink()
    pins.begin_removal(kept.shelf, f"c/t/{second}")
    for name, said in ((first, "is no complete snapshot"), (second, "it is being removed")):
        result = invoke("snapshot", "pin", kept.topic / name)
        assert (result.exit_code, said in result.stderr) == (2, True)


def test_a_command_that_is_not_there_is_no_connector_file(tmp_path: Path) -> None:
    """`keyfold snapshot FILE` takes a snapshot, whatever stands before the file; another word is a mistake."""
    kept = KeptSnapshots(tmp_path)
    assert "No such command" in invoke("snapshot", "lst", kept.connector).stderr
    assert "keeps nothing" in invoke("snapshot", "--worker", kept.worker, kept.connector).stderr


@pytest.mark.parametrize("group", ["snapshot", "erase"])
def test_help_of_a_group_shows_what_it_does_itself(group: str) -> None:
    """Its arguments and options, under the name that people give; `take` is none."""
    shown = " ".join(invoke(group, "--help").stdout.split())
    assert f"Usage: keyfold {group} [OPTIONS] {{CONNECTOR.json}}" in shown
    assert ("--timeout" in shown, "verify" in shown, " take " in shown.partition("Commands")[2]) == (True, True, False)


@pytest.mark.parametrize("command", ["take", "list", "show", "verify", "pin", "unpin", "diff"])
def test_each_command_has_an_example(command: str) -> None:
    """Its help shows how it is called."""
    shown = " ".join(invoke("snapshot", command, "--help").stdout.split())
    assert f"Examples: keyfold snapshot {'' if command == 'take' else command}".strip() in shown
    assert all(option in shown for option in ("--json", "--worker"))


def test_the_commands_of_the_page(kept: KeptSnapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/snapshots.md: each command is called as it stands there, but for the names of the file and the snapshot."""
    page = (ROOT / "docs" / "snapshots.md").read_text(encoding="utf-8")
    section = page.partition("## Looking after snapshots")[2].partition("\n## ")[0]
    shown = re.findall(r"(?m)^    keyfold (snapshot (?:list|show|verify|pin|unpin|diff) [^#\n]*)", section)
    assert len(shown) >= 5
    monkeypatch.chdir(kept.worker.parent)
    ids = dict.fromkeys(re.findall(r"\d{8}T\d{6}Z-\w+", section), kept.ids[0]) | {"customers": "t"}
    for line in shown:
        words = [ids.get(word, word).replace("customers.json", "c.json") for word in line.split()]
        result = invoke(*words)
        assert (result.exit_code, bool(result.stdout)) == (0, True), result.stderr
