"""What a killed worker leaves in TMPDIR is removed by the next one; what a running one has is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connectors.spark.stream import query_folder
from tests.support.cli import environment

WORKER = """
import sys
from connectors.spark.stream import query_folder
with query_folder() as checkpoint:
    if "begun" not in sys.argv:
        checkpoint.mkdir()
    print(checkpoint.parent, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another(tmp_path: Path, *arguments: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """Yields the folder of another worker, and its process, which is killed at the end."""
    command = [sys.executable, "-c", WORKER, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(TMPDIR=str(tmp_path)), text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip()), process
        process.kill()


def test_the_folder_of_a_worker_that_was_killed_goes_with_the_next_start(tmp_path: Path) -> None:
    """While it runs it stays; so does one that no worker has locked yet, and what is somebody else's."""
    (tmp_path / "keyfold-query-1-foreign").mkdir()
    with another(tmp_path) as (folder, process):
        with query_folder(tmp_path):
            assert folder.is_dir()
        process.kill()
        process.wait()
        assert folder.is_dir()
        with query_folder(tmp_path) as checkpoint:
            assert not folder.exists()
            assert checkpoint.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["keyfold-query-1-foreign"]


def test_a_folder_without_a_checkpoint_is_left(tmp_path: Path) -> None:
    """Its worker may be about to lock it."""
    with another(tmp_path, "begun") as (folder, process):
        process.kill()
        process.wait()
        with query_folder(tmp_path):
            assert folder.is_dir()


def test_a_pipe_of_another_account_holds_up_no_start(tmp_path: Path) -> None:
    """Whoever may write into TMPDIR could else keep each worker of the machine from starting."""
    (tmp_path / "keyfold-query-1-pipe").mkdir()
    os.mkfifo(tmp_path / "keyfold-query-1-pipe" / "held")
    command = [sys.executable, "-c", WORKER]
    settings = environment(TMPDIR=str(tmp_path))
    subprocess.run(command, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=60)
