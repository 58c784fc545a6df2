"""Folders that a worker could not write to are found before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.config.folder_checks import refusal


def test_a_folder_that_can_be_written_to_is_left_as_it_is(tmp_path: Path) -> None:
    """One that is there and one that would be made pass, and nothing is left of the trial."""
    assert [refusal(tmp_path), refusal(tmp_path / "a" / "b")] == [None, None]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        (Path("/proc/nope"), '"/proc/nope" cannot be made in /proc: '),
        (Path("/proc/self"), '"/proc/self" cannot be written to: '),
        (Path("DIR/file"), '/file" cannot be written to: Not a directory'),
        (Path("DIR/file/below"), '/file/below" cannot be made in DIR/file: Not a directory'),
        (Path("DIR/dangling"), '/dangling" cannot be written to: No such file'),
    ],
)
def test_what_cannot_be_written_to_says_why(tmp_path: Path, folder: Path, said: str) -> None:
    """Whatever the account's rights are: it is tried."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "away")
    found = refusal(Path(str(folder).replace("DIR", str(tmp_path))))
    assert found is not None
    assert said.replace("DIR", str(tmp_path)) in found
