"""The embedded broker's JARs: fetched once, by one process, used only when complete and unchanged."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from connectors.errors import UnreachableError
from connectors.jvm import artifacts

FILES = {"a-1.jar": b"aaa", "b-2.jar": b"bb"}


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A Maven with two files, reached without a network; lists the folders that were filled from it."""
    filled: list[Path] = []

    def fetch(_module: str, _scratch: Path, fetched: Path) -> None:
        fetched.mkdir()
        for name, content in FILES.items():
            (fetched / name).write_bytes(content)
        filled.append(fetched)

    pins = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(artifacts, "pinned_files", lambda: pins)
    monkeypatch.setattr(artifacts, "retrieve", fetch)
    return filled


def test_pins_name_the_broker_and_its_log() -> None:
    """The pinned set holds Kafka itself, in the version that is named, and the bridge from its log calls to log4j."""
    pins = artifacts.pinned_files()
    assert {f"kafka_2.13-{artifacts.KAFKA_VERSION}.jar", f"kafka-clients-{artifacts.KAFKA_VERSION}.jar"} <= pins.keys()
    assert any(name.startswith("log4j-slf4j-impl-") for name in pins)
    assert all(len(digest) == 64 for digest in pins.values())


def test_fetched_once(tmp_path: Path, fetches: list[Path]) -> None:
    """A complete folder is used as it is: the second call fetches nothing and leaves nothing but folder and lock."""
    first = artifacts.ensure_kafka(tmp_path)
    assert artifacts.ensure_kafka(tmp_path) == first
    assert {path.name: path.read_bytes() for path in first.iterdir()} == FILES
    assert len(fetches) == 1
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
def test_a_damaged_folder_is_fetched_again(tmp_path: Path, fetches: list[Path], damage: object) -> None:
    """A folder that misses a file, holds a changed one or one too many is replaced as a whole."""
    folder = artifacts.ensure_kafka(tmp_path)
    assert callable(damage)
    damage(folder)
    assert artifacts.faults(folder) != []
    assert artifacts.faults(artifacts.ensure_kafka(tmp_path)) == []
    assert len(fetches) == 2


def test_one_fetches_and_the_others_wait(tmp_path: Path, fetches: list[Path]) -> None:
    """Callers that need it at the same time fetch it once."""
    threads = [threading.Thread(target=artifacts.ensure_kafka, args=(tmp_path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(fetches) == 1


def test_other_files_than_the_pinned_are_refused(
    tmp_path: Path, fetches: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Maven gives another file under a pinned name, nothing is kept and the error names the file."""
    monkeypatch.setitem(FILES, "a-1.jar", b"not what was pinned")
    with pytest.raises(UnreachableError, match=r"a-1\.jar"):
        artifacts.ensure_kafka(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_maven_out_of_reach_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the fetching program fails, the error shows what it printed last and what can be done."""
    failing = tmp_path / "java"
    failing.write_text("#!/bin/sh\necho 'no route to the repository'\nexit 1\n", encoding="utf-8")
    failing.chmod(0o755)
    monkeypatch.setattr(artifacts, "find_java", lambda: str(failing))
    with pytest.raises(UnreachableError, match="no route to the repository") as caught:
        artifacts.ensure_kafka(tmp_path / "cache")
    assert artifacts.SETTINGS_VARIABLE in caught.value.action


@pytest.mark.parametrize("users", [None, "/etc/ivy.xml"])
def test_settings_of_a_module_count_where_the_user_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str | None
) -> None:
    """A mirror that the user names is asked, whatever a module needs of Maven Central."""
    monkeypatch.delenv(artifacts.SETTINGS_VARIABLE, raising=False)
    if users:
        monkeypatch.setenv(artifacts.SETTINGS_VARIABLE, users)
    (option, path) = artifacts._settings(tmp_path, "<ivysettings/>")
    assert (option, path) == ("-settings", users or str(tmp_path / "ivysettings.xml"))
    assert users or Path(path).read_text() == "<ivysettings/>"
