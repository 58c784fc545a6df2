from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compactor.errors import (
    CatalogError,
    DamagedFileError,
    FencedError,
    KeyfoldError,
    MissingFileError,
    StorageError,
    UnreadableFileError,
)
from connectors import errors
from connectors.cli import main
from tests.support.cli import command, connector_file, environment, invoke, keep, own_logging, row, worker_file


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("m"), 2),
        (errors.ConfigError("m"), 3),
        (errors.UnreachableError("m"), 4),
        (StorageError("m"), 4),
        (DamagedFileError("m"), 1),
        (MissingFileError("m"), 1),
        (UnreadableFileError("m"), 1),
        (FencedError("m"), 5),
        (errors.DataLossError("m"), 1),
        (CatalogError("m"), 1),
        (ValueError("m"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: int) -> None:
    """1 FAILED, damaged or unexpected, 2 usage, 3 configuration, 4 unreachable, 5 fenced."""
    with own_logging():
        assert main.exit_of(error).exit_code == code


def test_an_error_says_what_happened_and_what_to_do_next() -> None:
    """The message and the action stand on lines of their own, further lines indented."""
    told = main.message_of(KeyfoldError("Two faults:\na: wrong\nb: wrong", "Correct both."))
    assert told == "error: Two faults:\n  a: wrong\n  b: wrong\nnext: Correct both."


def test_an_error_without_an_action_has_no_second_line() -> None:
    """Nothing is said where nothing is known."""
    assert main.message_of(KeyfoldError("It broke.")) == "error: It broke."


@pytest.mark.parametrize(
    ("error", "lack"),
    [
        (OSError(28, "No space left on device", "file"), "[Errno 28] No space left on device: 'file'"),
        (MemoryError(), "memory is short"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
    ids=["disk", "memory", "threads"],
)
def test_what_the_machine_lacks_is_nothing_to_report(error: Exception, lack: str) -> None:
    """Whoever runs it can mend it, and nobody else. Python's own error of memory has no words."""
    told = main.message_of(error).splitlines()
    assert told[0] == f"error: The machine lacks something: {lack}."
    assert "room in the folder of TMPDIR" in told[1]


def test_an_unexpected_error_is_one_line_and_how_to_see_more() -> None:
    """No traceback meets a person who did not ask for one."""
    told = main.message_of(RuntimeError("first line\nsecond line"))
    assert told.splitlines()[0] == "error: RuntimeError: first line"
    assert "KEYFOLD_LOG_LEVEL=debug" in told.splitlines()[1]


def test_the_traceback_is_in_the_log_at_debug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With log.level=debug the whole traceback of an unexpected error is on stderr."""
    monkeypatch.setattr("connectors.config.files.load_connector", lambda *_: 1 / 0)
    quiet = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    loud = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path, **{"log.level": "debug"}))
    assert (quiet.exit_code, loud.exit_code) == (1, 1)
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert "error: ZeroDivisionError" in loud.stderr


def test_secrets_are_masked_in_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """An error text that quotes a setting does not show a password."""
    with own_logging():
        main.exit_of(errors.ConfigError("librdkafka: sasl.password=hunter2 refused"))
    told = capsys.readouterr().err
    assert "sasl.password=" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("arguments", [["analyse"], ["tail"], ["dump"], ["version", "--what"]])
def test_a_command_line_that_makes_no_sense_ends_with_2(arguments: list[str]) -> None:
    """Unknown commands and options and missing arguments are usage errors, told on stderr."""
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: keyfold" in result.stderr or "Usage:" in result.stderr


def test_once_needs_a_connector(tmp_path: Path) -> None:
    """Without `--once` a worker waits for connectors that are made over REST; with it there is nothing to do."""
    result = invoke("run", "--once", "--worker", worker_file(tmp_path))
    assert result.exit_code == 2
    assert "error: There is no connector to run: no file is named." in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, unbuffered: str) -> None:
    """`keyfold dump … | head -1` ends with 0 and says nothing, also with PYTHONUNBUFFERED, where writes are partial."""
    keep(tmp_path, [row(at, b"key", b"x" * 1000) for at in range(2000)])
    dump = command(
        "dump", connector_file(tmp_path), "--topic", "orders", "--partition", 0, "--worker", worker_file(tmp_path)
    )
    around = environment(PYTHONUNBUFFERED=unbuffered)
    with subprocess.Popen(dump, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"offset":0')
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_is_told_and_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that Ctrl-C ends says so, without a traceback."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("connectors.config.files.load_connector", interrupt)
    result = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")
