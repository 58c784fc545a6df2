"""What counts as flat over a soak."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import soak_report

MIB = 1024 * 1024


def note(at: int, memory: float, files: int) -> dict[str, object]:
    """A note with one process and one folder."""
    used = {"memory": memory * MIB, "threads": 20, "open_files": 40, "processes": 1}
    store = {"runs": {"files": files, "bytes": 100 * MIB}}
    return {"seconds": at * 10, "behind": 3, "records": at * 10, "epoch": 1, "processes": {"jvm": used}, "store": store}


@pytest.mark.parametrize(
    ("memory", "files", "flat"),
    [
        pytest.param(lambda at: 500 if at > 8 else 50 * at, lambda at: 10 + at % 7, True, id="a rise at the start"),
        pytest.param(lambda at: 500 + 10 * at, lambda at: 10 + at % 7, False, id="memory that grows"),
        pytest.param(lambda at: 500 + at % 50, lambda at: 10 + at, False, id="files that stay"),
        pytest.param(lambda at: 500, lambda at: min(at // 10, 5), True, id="a handful of files"),
    ],
)
def test_growth_is_told_from_noise(tmp_path: Path, memory: object, files: object, flat: bool) -> None:
    """The last quarter against the second; table and plot are written."""
    lines = [json.dumps(note(at, memory(at), files(at))) for at in range(40)]  # type: ignore[operator]
    (tmp_path / "soak.jsonl").write_text("\n".join(lines))
    assert soak_report.write(tmp_path / "soak.jsonl", tmp_path) is flat
    assert ("**no**" in (tmp_path / "soak.md").read_text()) is not flat
    assert (tmp_path / "soak.png").stat().st_size > 1_000


def test_a_soak_that_was_too_short_is_refused(tmp_path: Path) -> None:
    """Of a few notes there are no quarters."""
    (tmp_path / "soak.jsonl").write_text("\n".join(json.dumps(note(at, 1, 1)) for at in range(5)))
    with pytest.raises(ValueError, match="has 5 notes"):
        soak_report.write(tmp_path / "soak.jsonl", tmp_path)
