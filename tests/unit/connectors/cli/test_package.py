"""`keyfold package`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from connectors.spark import executor_archive
from connectors.spark.executor_settings import PYTHON_NAME
from tests.support.cli import invoke


@pytest.fixture(autouse=True)
def _nothing_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of no files, which is made at once."""
    monkeypatch.setattr(executor_archive, "files", lambda _: [])


def test_it_shows_the_settings_that_use_the_archive(tmp_path: Path) -> None:
    """As lines for a worker file, below the packages with their versions."""
    file = tmp_path / "executors.tar.gz"
    done = invoke("package", str(file))
    assert done.exit_code == 0
    assert f'"spark.archives": "{file.as_uri()}#keyfold"' in done.stdout
    assert '"spark.executorEnv.PYTHONPATH": "./keyfold/lib"' in done.stdout
    assert "pyarrow" in done.stdout


def test_it_reports_as_json(tmp_path: Path) -> None:
    """The file, its size, what is in it, and the settings."""
    file = tmp_path / "executors.tar.gz"
    found = json.loads(invoke("package", str(file), "--json").stdout)
    assert (found["file"], found["bytes"]) == (str(file), file.stat().st_size)
    assert found["settings"]["spark.pyspark.python"] == PYTHON_NAME
    assert {"keyfold", "confluent-kafka", "pyarrow"} <= found["packages"].keys()


def test_without_a_file_it_is_the_one_that_workers_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = json.loads(invoke("package", "--json").stdout)
    assert Path(found["file"]).parent == tmp_path / "keyfold" / "executors"


@pytest.mark.parametrize(("name", "gzipped"), [("a.tar.gz", True), ("a.tgz", True), ("a.tar", False)])
def test_it_is_gzipped_where_its_name_says_so(tmp_path: Path, name: str, gzipped: bool) -> None:
    """As Spark takes it by its name."""
    assert invoke("package", str(tmp_path / name)).exit_code == 0
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") is gzipped
    with tarfile.open(tmp_path / name) as archive:
        assert archive.getnames() == []


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("a.zip", 2, "Spark goes by the name's end"), ("nothing/a.tar.gz", 3, "could not be written")],
)
def test_what_is_no_place_for_it(tmp_path: Path, name: str, code: int, says: str) -> None:
    """An end that Spark does not unpack is a usage error; a place that cannot be written one of configuration."""
    (tmp_path / "nothing").touch()
    done = invoke("package", str(tmp_path / name))
    assert done.exit_code == code
    assert says in done.stderr
