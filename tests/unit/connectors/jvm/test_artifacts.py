"""The embedded broker's JARs: fetched once, by one process, used only when complete and unchanged."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from connectors.errors import UnreachableError
from connectors.jvm import artifacts
from connectors.jvm.java import find_java

FILES = {"a-1.jar": b"aaa", "b-2.jar": b"bb"}


@pytest.fixture
def maven() -> Maven:
    return Maven()


class Maven:
    """A Maven with two files, reached without a network; `filled` are the folders that were filled from it."""

    def __init__(self) -> None:
        self.filled: list[Path] = []
        self.pins = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}

    def ensure(self, cache: Path) -> Path:
        return artifacts.ensure_kafka(cache, self.pins, self._fetch)

    def faults(self, folder: Path) -> list[str]:
        return artifacts.faults(folder, self.pins)

    def _fetch(self, _module: str, _scratch: Path, fetched: Path) -> None:
        fetched.mkdir()
        for name, content in FILES.items():
            (fetched / name).write_bytes(content)
        self.filled.append(fetched)


def test_pins_name_the_broker_and_its_log() -> None:
    """The pinned set holds Kafka itself, in the version that is named, and the bridge from its log calls to log4j."""
    pins = artifacts.pinned_files()
    assert {f"kafka_2.13-{artifacts.KAFKA_VERSION}.jar", f"kafka-clients-{artifacts.KAFKA_VERSION}.jar"} <= pins.keys()
    assert any(name.startswith("log4j-slf4j-impl-") for name in pins)
    assert all(len(digest) == 64 for digest in pins.values())


def test_fetched_once(tmp_path: Path, maven: Maven) -> None:
    """A complete folder is used as it is: the second call fetches nothing and leaves nothing but folder and lock."""
    first = maven.ensure(tmp_path)
    assert maven.ensure(tmp_path) == first
    assert {path.name: path.read_bytes() for path in first.iterdir()} == FILES
    assert len(maven.filled) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name, f"{first.name}.lock"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "a-1.jar").unlink(),
        lambda folder: (folder / "a-1.jar").write_bytes(b"aab"),
        lambda folder: (folder / "c.jar").write_bytes(b""),
    ],
    ids=["missing", "changed", "additional"],
)
def test_a_damaged_folder_is_fetched_again(tmp_path: Path, maven: Maven, damage: object) -> None:
    """A folder that misses a file, holds a changed one or one too many is replaced as a whole."""
    folder = maven.ensure(tmp_path)
    assert callable(damage)
    damage(folder)
    assert maven.faults(folder) != []
    assert maven.faults(maven.ensure(tmp_path)) == []
    assert len(maven.filled) == 2


def test_one_fetches_and_the_others_wait(tmp_path: Path, maven: Maven) -> None:
    """Callers that need it at the same time fetch it once."""
    threads = [threading.Thread(target=maven.ensure, args=(tmp_path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(maven.filled) == 1


def test_other_files_than_the_pinned_are_refused(tmp_path: Path, maven: Maven, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Maven gives another file under a pinned name, nothing is kept and the error names the file."""
    monkeypatch.setitem(FILES, "a-1.jar", b"not what was pinned")
    with pytest.raises(UnreachableError, match=r"a-1\.jar"):
        maven.ensure(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_maven_out_of_reach_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the fetching program fails, the error shows what it printed last and what can be done."""
    failing = tmp_path / "bin" / "java"
    failing.parent.mkdir()
    version = 'case "$*" in *-version*) echo \'openjdk version "17.0.1"\' >&2; exit 0;; esac'
    failing.write_text(f"#!/bin/sh\n{version}\necho 'no route to the repository'\nexit 1\n", encoding="utf-8")
    failing.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    find_java.cache_clear()
    try:
        with pytest.raises(UnreachableError, match="no route to the repository") as caught:
            artifacts.ensure_kafka(tmp_path / "cache")
    finally:
        find_java.cache_clear()
    assert artifacts.SETTINGS_VARIABLE in caught.value.action


@pytest.mark.parametrize("users", [None, "/etc/ivy.xml"])
def test_settings_of_a_module_count_where_the_user_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str | None
) -> None:
    """A mirror that the user names is asked, whatever a module needs of Maven Central."""
    monkeypatch.delenv(artifacts.SETTINGS_VARIABLE, raising=False)
    if users:
        monkeypatch.setenv(artifacts.SETTINGS_VARIABLE, users)
    (option, path) = artifacts.ivy_settings(tmp_path, "<ivysettings/>")
    assert (option, path) == ("-settings", users or str(tmp_path / "ivysettings.xml"))
    assert users or Path(path).read_text() == "<ivysettings/>"
