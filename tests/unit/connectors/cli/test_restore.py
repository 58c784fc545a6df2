"""`keyfold restore`: what its command line takes; tests/kafka/test_restore.py restores."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cli import ROOT, invoke, worker_file
from tests.support.kept_snapshots import KeptSnapshots


@pytest.mark.parametrize("option", ["--config", "--replication-factor"])
def test_settings_of_a_topic_need_that_it_is_made(tmp_path: Path, option: str) -> None:
    """They would be ignored otherwise."""
    kept = KeptSnapshots(tmp_path)
    kept.topic.mkdir(parents=True)
    value = "retention.ms=1" if option == "--config" else "3"
    result = invoke("restore", kept.topic, "--topic", "t", option, value, "--worker", kept.worker)
    assert result.exit_code == 2


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    """Before a broker is asked."""
    result = invoke("restore", tmp_path, "--topic", "t", "--worker", worker_file(tmp_path))
    assert (result.exit_code, "There is no snapshot in" in result.stderr) == (2, True)


def test_a_connector_file_is_no_snapshot(tmp_path: Path) -> None:
    """The error asks for the folder of a snapshot, and says which command lists these."""
    kept = KeptSnapshots(tmp_path)
    result = invoke("restore", kept.connector, "--topic", "t", "--worker", kept.worker)
    assert (result.exit_code, "is a file" in result.stderr, "snapshot list" in result.stderr) == (2, True, True)


def test_the_page_and_the_help_show_the_same_command() -> None:
    """And every option of the page is there."""
    shown = " ".join(invoke("restore", "--help").stdout.split())
    page = (ROOT / "docs" / "snapshots.md").read_text(encoding="utf-8")
    section = page.partition("## Restoring one")[2].partition("\n## ")[0]
    words = set(re.findall(r"--[a-z][a-z-]+", section))
    assert words
    assert {word for word in words if word not in shown} == set()
    assert "Examples: keyfold restore snapshots/customers/customers --topic restored --create" in shown
