"""Archives that nobody uses go; those that are in use, or were placed by a person, stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from connectors.spark.archive_cache import hold, keep, remove_unused

WEEK_S = 7 * 86_400
NOW_S = 1_000_000_000.0
_HOLDS = """
import sys
from pathlib import Path
from connectors.spark.archive_cache import hold

hold(Path(sys.argv[1]), 0.0)
print("held", flush=True)
sys.stdin.read()
"""


def archive(folder: Path, name: str, used_s: float) -> Path:
    """An archive that was used last at `used_s`."""
    file = folder / f"keyfold-{name}.tar"
    file.touch()
    os.utime(file, (used_s, used_s))
    return file


def test_what_was_not_used_for_a_week_goes(tmp_path: Path) -> None:
    """Neither what is newer, nor what `keyfold package` has named, nor other files."""
    old = archive(tmp_path, "old", NOW_S - WEEK_S - 1)
    placed = archive(tmp_path, "placed", 0)
    keep(placed)
    recent = archive(tmp_path, "recent", NOW_S - WEEK_S)
    (tmp_path / "other.tar").touch()
    assert remove_unused(tmp_path, "keyfold-*.tar", NOW_S) == [old]
    assert {placed, recent, tmp_path / "other.tar"} <= set(tmp_path.iterdir())


def test_a_use_counts_from_its_begin(tmp_path: Path) -> None:
    """What it holds is what it was: only the time of its last use changes."""
    file = archive(tmp_path, "used", 5.0)
    assert hold(file, NOW_S)
    assert (file.stat().st_atime, file.stat().st_mtime) == (NOW_S, 5.0)
    assert not hold(tmp_path / "nothing.tar", NOW_S)


def test_one_that_a_worker_holds_stays_until_that_ends(tmp_path: Path) -> None:
    """However long ago it began: executors that start later ask for the file."""
    file = archive(tmp_path, "held", 0.0)
    words = [sys.executable, "-c", _HOLDS, str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        os.utime(file, (0, 0))
        assert remove_unused(tmp_path, "keyfold-*.tar", NOW_S) == []
    assert remove_unused(tmp_path, "keyfold-*.tar", NOW_S) == [file]
