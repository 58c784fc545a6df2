"""`keyfold validate`: one line a file, every fault a line, JSON on demand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.cli.commands.validate import validate
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.errors import EXIT_CONFIG, ConfigError, exit_code
from connectors.jvm.java import find_java
from tests.support.cli import connector_file, invoke, worker_file

LEAST = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("w.json").write_text('{"bootstrap.servers": "127.0.0.1:9"}')
    Path("good.json").write_text(json.dumps(LEAST | {"consumer.override.sasl.password": "open-sesame"}))
    Path("bad.json").write_text(json.dumps({"name": "d", "topcs": "t"}))
    return tmp_path


def test_valid_files_have_a_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid file is `FILE: valid` and the command ends well, without any broker."""
    validate([Path("good.json")], Path("w.json"))
    assert capsys.readouterr().out == "good.json: valid\n"


def test_every_fault_has_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults are listed with their file, the other files are checked all the same, and the exit code is 3."""
    with pytest.raises(ConfigError, match=r"1 of 2 files is not valid\.") as caught:
        validate([Path("bad.json"), Path("good.json")], Path("w.json"))
    lines = capsys.readouterr().out.splitlines()
    assert exit_code(caught.value) == EXIT_CONFIG
    assert lines[-1] == "good.json: valid"
    assert [line for line in lines if 'did you mean "topics"' in line] == [lines[0]]
    assert all(line.startswith("bad.json: ") for line in lines[:-1])


def test_a_worker_file_is_checked_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults of the worker file come first, and connector files are still checked by themselves."""
    Path("w.json").write_text("{}")
    with pytest.raises(ConfigError):
        validate([Path("good.json")], Path("w.json"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("w.json: bootstrap.servers: missing")
    assert second == "good.json: valid"


@pytest.mark.parametrize(
    ("file", "setting", "said"),
    [
        (
            "w.json",
            {"storage.location": "/proc/nope"},
            'w.json: storage.location: "/proc/nope" cannot be made',
        ),
        ("w.json", {"spark.master": "foo"}, 'w.json: spark.master: "foo" is not allowed'),
        ("good.json", {"snapshot.location": "/proc/nope"}, 'good.json: snapshot.location: "/proc/nope" cannot be made'),
    ],
)
def test_what_a_worker_would_find_late_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, setting: dict[str, str], said: str
) -> None:
    """Folders that cannot be written to and a master that Spark does not know are faults, before anything runs."""
    Path(file).write_text(json.dumps(json.loads(Path(file).read_text()) | setting))
    with pytest.raises(ConfigError, match=r"(1 of 2 files|The file) is not valid\."):
        validate([Path("good.json")], Path("w.json"))
    assert capsys.readouterr().out.startswith(said)


def test_a_machine_without_java_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a worker file it is said that Spark has no Java here; files alone are checked anywhere."""
    monkeypatch.setenv("JAVA_HOME", str(folder))
    find_java.cache_clear()
    validate([Path("good.json")])
    with pytest.raises(ConfigError):
        validate([Path("good.json")], Path("w.json"))
    assert capsys.readouterr().out.splitlines()[1].startswith(f"w.json: There is no `java` in JAVA_HOME ({folder}).")
    find_java.cache_clear()


def test_two_of_one_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two connector files of one name are a fault of the later one."""
    Path("same.json").write_text(json.dumps(LEAST))
    with pytest.raises(ConfigError):
        validate([Path("good.json"), Path("same.json")])
    assert capsys.readouterr().out.splitlines()[1] == 'same.json: name: "c" is also in good.json; rename one.'


def test_a_warning_leaves_a_file_valid(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stands below, in both files that are concerned or in one, and changes no exit code."""
    every = {**LEAST, "name": "every", "topics.regex": ".*", "output.topic": "x.${topic}"}
    del every["topics"]
    Path("every.json").write_text(json.dumps(every))
    validate([Path("every.json"), Path("good.json")])
    first, warning, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("every.json: valid", "good.json: valid")
    assert warning.startswith("every.json: warning: topics.regex: takes in ")
    assert 'to which connector "c" in good.json writes. Leave such topics out with topics.exclude' in warning


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json one object a line: file, name, valid, errors, warnings, config; the config shows no secret."""
    with pytest.raises(ConfigError):
        validate([Path("good.json"), Path("bad.json")], Path("w.json"), as_json=True)
    good, bad = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert _without(good, "config") == {
        "file": "good.json",
        "name": "c",
        "valid": True,
        "errors": [],
        "warnings": [],
    }
    assert good["config"]["consumer.override.sasl.password"] == "[hidden]"
    assert good["config"]["output.topic"] == "${topic}.compacted"
    assert (bad["valid"], bad["config"], len(bad["errors"])) == (False, None, 2)


def _without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != name}


def test_the_broker_is_asked_while_a_file_is_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the settings that are right; what it says stands beside the faults of the file."""
    asked = list[ConnectorConfig]()

    def faults(config: ConnectorConfig, _: object) -> tuple[Fault, ...]:
        asked.append(config)
        return (Fault("topics", "orders does not exist."),)

    monkeypatch.setattr("connectors.operations.validate.probe_all", lambda *_: None)
    monkeypatch.setattr("connectors.operations.validate.broker_faults", faults)
    wrong = connector_file(tmp_path, **{"tasks.max": "many", "transforms": "r", "transforms.r.type": "None"})
    done = invoke("validate", wrong, "--worker", worker_file(tmp_path), "--broker")
    assert done.exit_code == 3
    for said in ("tasks.max", "transforms.r.type", "orders does not exist"):
        assert said in done.stdout
    assert [config.tasks_max for config in asked] == [None]


def test_files_are_told_about_where_no_broker_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and the exit code is that of the broker."""
    monkeypatch.setattr("connectors.operations.validate._PROBE_S", 0.2)
    files = [connector_file(tmp_path).rename(tmp_path / "a.json"), connector_file(tmp_path, topcs="x", name="b")]
    done = invoke("validate", *files, "--worker", worker_file(tmp_path), "--broker")
    assert done.exit_code == 4
    assert f"{files[0]}: valid" in done.stdout
    assert "topcs" in done.stdout
