"""What is in the archive for executors, and what comes of it in a Python that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from connectors.errors import ConfigError
from connectors.jvm.spark_home import installed
from connectors.spark import executor_archive
from connectors.spark.executor_archive import FOLDER, distributions, ensure_archive, files, make_archive, versions

IMPORT_TASKS = """
import importlib, pkgutil, sys
import compactor, connectors
of_driver = "cli dev jvm metrics operations progress rest runtime spark tables ui".split()
for package in (compactor, connectors):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        parts = module.name.split(".")
        if package is compactor or parts[1] not in of_driver:
            importlib.import_module(module.name)
import grpc_tools.protoc, google.protobuf, httpx, javaproperties, obstore, pandas, regex
from importlib.metadata import version
print(version("keyfold"), compactor.__file__, compactor.__cached__)
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of this environment, made and unpacked once."""
    folder = tmp_path_factory.mktemp("archive")
    made = make_archive(folder / "keyfold.tar")
    assert made.size == made.file.stat().st_size
    with tarfile.open(made.file) as archive:
        archive.extractall(folder, filter="data")
    return folder / FOLDER


@pytest.mark.long  # it takes 20 s, and make cluster has executors of other machines
def test_a_python_without_packages_runs_tasks_with_it(unpacked: Path, tmp_path: Path) -> None:
    """All modules that tasks may import come out of it, with Spark's own Python beside it and nothing else."""
    home = installed()
    assert home is not None
    spark = [str(file) for file in sorted((home / "python" / "lib").glob("*.zip"))]
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    done = subprocess.run(
        [str(tmp_path / "bare" / "bin" / "python"), "-c", IMPORT_TASKS],
        env={"PYTHONPATH": os.pathsep.join([*spark, str(unpacked)]), "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, module, compiled = done.stdout.split()
    assert (version, module) == (versions(distributions())["keyfold"], str(unpacked / "compactor" / "__init__.py"))
    assert Path(compiled).read_bytes()[4:8] == b"\1\0\0\0"  # as it came: a module that Python compiles has 0 there


def test_it_holds_nothing_that_executors_have_or_do_not_import(unpacked: Path) -> None:
    """Neither Spark nor what answers REST, no tests and no headers."""
    there = {path.name for path in unpacked.iterdir()}
    assert there & {"pyspark", "py4j", "fastapi", "uvicorn", "rich", "grpc", "bin"} == set()
    assert not list((unpacked / "pyarrow").glob("*flight*.so*"))
    assert not (unpacked / "pandas" / "tests").exists()
    assert not list(unpacked.rglob("*.h"))


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions of what archives have, which a test may change; no archive has files."""
    held = {"keyfold": "8"}
    monkeypatch.setattr(executor_archive, "files", lambda _: list(files([]))[:0])
    monkeypatch.setattr(executor_archive, "versions", lambda _: dict(held))
    return held


def test_it_is_made_once(tmp_path: Path, contents: dict[str, str]) -> None:
    """In the cache, under a name that has what it holds; one that is there is taken as it is."""
    first = ensure_archive(tmp_path).file
    stamp = first.stat().st_mtime_ns
    assert ensure_archive(tmp_path).file == first
    assert first.stat().st_mtime_ns == stamp
    contents["keyfold"] = "9"
    assert ensure_archive(tmp_path).file != first


def test_an_archive_stays_while_its_process_lives_and_old_ones_go(tmp_path: Path, contents: dict[str, str]) -> None:
    """One that was there as well as one that is made now, which removes what nobody has used for a week."""
    made = ensure_archive(tmp_path / "a").file
    there = tmp_path / "b" / made.relative_to(tmp_path / "a")
    there.parent.mkdir(parents=True)
    shutil.copy(made, there)
    assert ensure_archive(tmp_path / "b").file == there
    old = there.with_name("keyfold-old.tar")
    old.touch()
    for file in (made, there, old):
        os.utime(file, (0, 0))
    contents["keyfold"] = "9"
    for place in ("a", "b"):
        ensure_archive(tmp_path / place)
    assert [file.exists() for file in (made, there, old)] == [True, True, False]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With what to do; and nothing is left there."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"could not be written to .*/file/a\.tar\.gz: File exists"):
        make_archive(tmp_path / "file" / "a.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
