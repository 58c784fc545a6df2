"""Archives of Java's classes: named by what they were made from, taken where they are, made once, never in the way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.jvm import cds_archive as class_archive
from connectors.jvm.artifacts import KAFKA_VERSION
from connectors.jvm.cds_archive import archive_of, ensure_archive, sharing

Training = Callable[[str], None]


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a JAR, and a Java of the test's own."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    folder = tmp_path / "some jars"
    folder.mkdir()
    (folder / "a.jar").write_text("a")
    return folder


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    """Puts a shell script in the place of the training run; its arguments are -m MODULE WHAT ARCHIVE."""

    def replaced_by(script: str) -> None:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))

    return replaced_by


def test_an_archive_is_made_once_and_taken(jars: Path, training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says that it is made; from then on a JVM is told of it, and nothing is said."""
    training('echo "$3" > "$4"')
    assert sharing(jars) == []
    assert ensure_archive(jars, "spark")
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert ensure_archive(jars, "spark")
    assert capsys.readouterr().err == ""
    archive = archive_of(jars)
    assert archive is not None
    assert archive.read_text() == "spark\n"
    assert sharing(jars)[0] == f"-XX:SharedArchiveFile={archive}"


@pytest.mark.parametrize("script", ["exit 1", "exit 0", 'echo half > "$4"; exit 1'], ids=["fails", "none", "half"])
def test_a_training_that_fails_stops_nobody(
    jars: Path, training: Training, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    """No archive, no rest of one, a line that says so, and no error."""
    training(script)
    assert not ensure_archive(jars, "spark")
    assert "starts without it" in capsys.readouterr().err
    assert sharing(jars) == []
    assert [entry.name for entry in jars.parent.iterdir() if "classes" in entry.name or "training" in entry.name] == []


@pytest.mark.parametrize("change", ["another jar", "the jar is newer", "another java"])
def test_what_it_was_made_from_must_be_the_same(jars: Path, training: Training, change: str) -> None:
    """With other JARs or another Java it is not taken, and the next one that is made takes its place."""
    training('echo made > "$4"')
    ensure_archive(jars, "spark")
    before = archive_of(jars)
    if change == "another jar":
        (jars / "b.jar").write_text("b")
    else:
        touched = jars / "a.jar" if change == "the jar is newer" else Path(os.environ["JAVA_HOME"], "bin", "java")
        os.utime(touched, (1, 1))
    assert sharing(jars) == []
    assert ensure_archive(jars, "spark")
    assert before != archive_of(jars)
    assert [entry for entry in jars.parent.iterdir() if entry.suffix == ".jsa"] == [archive_of(jars)]


def test_without_java_there_is_none(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the JVM says that there is no Java; this does not."""
    monkeypatch.setenv("JAVA_HOME", str(jars))
    assert archive_of(jars) is None
    assert sharing(jars) == []
    assert not ensure_archive(jars, "spark")


def test_the_command_makes_what_is_missing_and_clears_away_what_is_left_over(
    tmp_path: Path, jars: Path, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's archive always, the broker's where its JARs are there; the home of a Spark that is gone is removed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "keyfold"
    (cache / "spark-0.0-gone").mkdir(parents=True)
    (cache / "spark-0.0-gone" / "jars").symlink_to(tmp_path / "gone")
    training('echo "$3" > "$4"')
    class_archive.main()
    assert [archive.read_text() for archive in cache.rglob("*.jsa")] == ["spark\n"]
    jars.rename(cache / f"kafka-{KAFKA_VERSION}")
    class_archive.main()
    assert sorted(archive.read_text() for archive in cache.rglob("*.jsa")) == ["kafka\n", "spark\n"]
    assert not (cache / "spark-0.0-gone").exists()
