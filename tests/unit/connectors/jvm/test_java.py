"""Java is looked for where Spark looks, and one that is missing or too old is said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import ConfigError
from connectors.jvm.java import begin_to_find, find_java, major_version


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def _java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.1"', 21),
        ("command not found", None),
    ],
)
def test_major_version(answer: str, expected: int | None) -> None:
    """The major version is read from `java -version` in its old and its new way of counting."""
    assert major_version(answer) == expected


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME's Java is taken, whatever is on PATH."""
    java = _java(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where JAVA_HOME has no Java the error says so, names the folder, and says what to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no `java`") as caught:
        find_java()
    assert str(tmp_path) in caught.value.message
    assert "Java 17" in caught.value.action


def test_old_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java older than 17 is refused by its version."""
    _java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="is Java 11"):
        find_java()


@pytest.mark.parametrize(
    ("said", "variable", "action"),
    [
        ("Could not reserve", "-Xnonsense", "Correct JAVA_TOOL_OPTIONS. Give this process more memory"),
        ("Could not reserve", "", "Give this process more memory, or threads (its container's limits, ulimit -v"),
        ("Failed to start thread: pthread_create failed (EAGAIN)", "", "Give this process more memory"),
        ("Unrecognized option: -Xnonsense", "-Xnonsense", "Correct JAVA_TOOL_OPTIONS."),
        ("cannot execute binary file", "", "Install Java 17"),
    ],
)
def test_a_java_that_does_not_run_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, variable: str, action: str
) -> None:
    """With what it wrote, on either stream, and what to do: another Java does not help if memory is short."""
    script = f"#!/bin/sh\necho Error occurred during initialization of VM\necho '{said}'\n"
    _java(tmp_path, "17").write_text(script, encoding="utf-8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", variable)
    with pytest.raises(ConfigError) as caught:
        find_java()
    assert f"does not run: {said}." in caught.value.message
    assert caught.value.action.startswith(action)


def test_java_is_asked_once_ahead_of_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks for Java early is not waited for, and its answer is the one that is taken later."""
    java, asked = _java(tmp_path, "11.0.2"), tmp_path / "asked"
    java.write_text(f"#!/bin/sh\necho once >> {asked}\n" + java.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    begin_to_find()
    begin_to_find()
    with pytest.raises(ConfigError, match="is Java 11"):
        find_java()
    assert asked.read_text(encoding="utf-8") == "once\n"


def test_asking_ahead_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is missing, or that the system does not run, is said by what needs it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    begin_to_find()
    _java(tmp_path, "17").write_bytes(b"\x7fELF")
    begin_to_find()
    with pytest.raises(OSError, match="Exec format"):
        find_java()
