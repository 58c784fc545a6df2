"""`keyfold clean` and `keyfold release`, as far as they need neither Spark nor a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compactor.clean.cleaner import CleanedLog
from connectors.runtime.request_handler import CLEAN, RELEASE
from tests.support.cli import connector_file, invoke, keep, row, storage_of, worker_file
from tests.support.live_worker import live_worker

DONE = CleanedLog(
    topic="orders",
    partition=1,
    end=1_200,
    records_before=1_100,
    records=90,
    bytes_before=22_000,
    bytes=1_800,
    tombstones=3,
)


def _invoke(folder: Path, *more: str) -> Any:
    return invoke(more[0], connector_file(folder), "--worker", worker_file(folder), *more[1:])


def test_clean_shows_what_each_fold_left(tmp_path: Path) -> None:
    """Records and bytes before and after, by partition; the same as JSON."""
    keep(tmp_path, [row(0, b"a", b"1")])
    with live_worker(storage_of(tmp_path), {"logs": [msgspec.to_builtins(DONE)]}) as asked:
        shown = _invoke(tmp_path, "clean", "--topic", "orders", "--partition", "0")
        (told,) = json.loads(_invoke(tmp_path, "clean", "--json").stdout)
    assert shown.stdout.splitlines()[1].split() == ["orders", "1", "1,200", "1,100", "90", "22,000", "1,800", "3"]
    assert (told["records_before"], told["records"], told["end"]) == (1_100, 90, 1_200)
    assert [(each.kind, each.topic, each.partition) for each in asked] == [(CLEAN, "orders", 0), (CLEAN, None, None)]


def test_clean_says_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    """A sentence, and exit code 0."""
    keep(tmp_path, [row(0, b"a", b"1")])
    with live_worker(storage_of(tmp_path), {"logs": []}):
        shown = _invoke(tmp_path, "clean")
    assert (shown.exit_code, shown.stdout[:24]) == (0, "There is nothing to fold")


def test_a_partition_alone_names_nothing(tmp_path: Path) -> None:
    """Without its topic a partition is a mistake of usage."""
    shown = _invoke(tmp_path, "clean", "--partition", "1")
    assert shown.exit_code == 2
    assert "--topic" in shown.stderr


def test_a_raw_copy_is_not_folded_on_command_either(tmp_path: Path) -> None:
    """With cleanup.policy=delete `clean` is refused, before anything is started."""
    connector = Path(connector_file(tmp_path))
    changed = {**json.loads(connector.read_text()), "cleanup.policy": "delete", "output.topic": "none"}
    changed.pop("snapshot.location", None)
    connector.write_text(json.dumps(changed))
    shown = invoke("clean", str(connector), "--worker", worker_file(tmp_path))
    assert shown.exit_code == 3
    assert "cleanup.policy=delete" in shown.stderr


@pytest.mark.parametrize(
    "asked",
    [
        ("clean", "--topic", "nope"),
        ("clean", "--topic", "orders", "--partition", "9"),
        ("release", "--topic", "orders", "--partition", "9"),
    ],
)
def test_what_is_not_there_is_a_mistake_of_usage(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """Told before Spark starts, a worker is asked, or anything is taken over."""
    keep(tmp_path, [row(0, b"a", b"1")])
    shown = _invoke(tmp_path, *asked)
    assert shown.exit_code == 2
    assert "Its topics are: orders" in shown.stderr


@pytest.mark.parametrize(
    "asked", [("clean",), ("snapshot",), ("release", "--topic", "orders", "--partition", "0"), ("analyze",)]
)
def test_a_connector_that_never_ran_is_a_mistake_of_usage(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """Nothing is made: no catalog, no folder, no topic; all of them say it alike."""
    files = connector_file(tmp_path, **{"snapshot.location": str(tmp_path / "shelf")}), worker_file(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    shown = invoke(asked[0], files[0], "--worker", files[1], *asked[1:])
    assert (shown.exit_code, "keeps nothing yet" in shown.stderr) == (2, True)
    assert "keyfold run CONNECTOR.json --once" in shown.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("done", "said"), [(True, "is taken up again"), (False, "was not quarantined")])
def test_release_says_what_it_did(tmp_path: Path, done: bool, said: str) -> None:
    """Whether the partition was in quarantine at all."""
    keep(tmp_path, [row(0, b"a", b"1")])
    with live_worker(storage_of(tmp_path), {"released": done}) as asked:
        shown = _invoke(tmp_path, "release", "--topic", "orders", "--partition", "0")
    assert [(each.kind, each.topic, each.partition) for each in asked] == [(RELEASE, "orders", 0)]
    assert (shown.exit_code, said in shown.stdout) == (0, True)
