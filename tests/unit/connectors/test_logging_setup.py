from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from compactor.secret_forms import HIDDEN
from connectors import logging_setup
from connectors.known_values import remember_setting
from tests.support.cli import own_logging

_log = structlog.get_logger("tests")


@pytest.fixture(autouse=True)
def _own() -> Iterator[None]:
    with own_logging():
        yield


def _only(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    read = capsys.readouterr()
    assert read.out == ""
    (line,) = read.err.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_every_line_is_json_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line on stderr, with event, level, logger and time."""
    logging_setup.configure("info", "json")
    _log.info("batch ingested", records=4)
    line = _only(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "batch ingested", "level": "info", "logger": "tests", "records": 4}


def test_libraries_log_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    """What pyspark logs through the standard library is a line like ours."""
    logging_setup.configure("info", "json")
    logging.getLogger("pyspark.sql").warning("slow %s", "join")
    line = _only(capsys)
    assert (line["event"], line["logger"], line["level"]) == ("slow join", "pyspark.sql", "warning")


def test_py4j_is_quiet_below_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """It tells every call; not even log.level=debug wants that."""
    logging_setup.configure("debug", "json")
    logging.getLogger("py4j.clientserver").info("Command to send")
    logging.getLogger("py4j.clientserver").debug("Answer received")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("path", "lines"), [("/site-packages/py4j/java_gateway.py", 0), ("/app/other.py", 1)])
def test_the_end_of_the_jvm_is_no_traceback_of_py4js(path: str, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    """py4j logs it as root; the worker says itself that the JVM has ended. What others log as root stays."""
    logging_setup.configure("info", "json")
    root = logging.getLogger()
    root.handle(logging.LogRecord("root", logging.ERROR, path, 1059, "Exception while sending command.", (), None))
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize("name", ["httpx", "httpcore.connection", "botocore.parsers"])
def test_a_request_to_a_registry_is_no_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning of its client is one."""
    logging_setup.configure("debug", "json")
    logging.getLogger(name).info("HTTP Request")
    assert capsys.readouterr().err == ""
    logging.getLogger(name).warning("late")
    assert _only(capsys)["event"] == "late"


def test_a_warning_of_python_is_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a loose text between the lines."""
    logging_setup.configure("info", "json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    assert "DeprecationWarning: old" in _only(capsys)["event"]


def test_less_than_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """log.level is the least level of what is logged, ours and libraries'."""
    logging_setup.configure("warning", "json")
    _log.info("not this")
    logging.getLogger("pyspark").info("nor this")
    _log.warning("this")
    assert _only(capsys)["event"] == "this"


def test_a_process_of_sparks_logs_as_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Format and level of the worker file hold in the processes that read the source."""
    log = "from connectors import logging_setup as s; s.configure_as_parent(); import structlog; "
    monkeypatch.setenv("SPARK_KEYFOLD_LOG", "")
    logging_setup.hand_on("warning", "json")
    script = log + "l = structlog.get_logger(); l.info('quiet'); l.warning('loud', topic='t')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["topic"]) == ("loud", "t")


@pytest.mark.parametrize("style", ["console", "json"])
@pytest.mark.parametrize(
    "values",
    [
        {"sasl.password": "hunter2"},
        {"config": {"ssl.key.pem": "hunter2", "nested": {"password": "hunter2"}}},
        {"configs": [{"secret": "hunter2"}]},
        {"text": "failed with sasl.password=hunter2 and more"},
        {"text": "{'sasl.password': 'hunter2'}"},
        {"text": 'sasl.jaas.config="hunter2 required;"'},
    ],
)
def test_no_secret_is_ever_logged(capsys: pytest.CaptureFixture[str], style: str, values: dict[str, Any]) -> None:
    """Secret names are masked at any depth, and `name=value` inside texts."""
    logging_setup.configure("info", style)
    _log.info("settings", **values)
    line = capsys.readouterr().err
    assert "hunter2" not in line
    assert HIDDEN in line


def test_secrets_in_tracebacks_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    """An exception's text goes the same way."""
    logging_setup.configure("info", "console")
    try:
        raise ValueError("sasl.password=hunter2 is refused")
    except ValueError:
        _log.exception("client refused")
    line = capsys.readouterr().err
    assert "Traceback" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_plan_of_sparks_is_never_logged(capsys: pytest.CaptureFixture[str], style: str) -> None:
    """Neither as an error's text nor in its traceback: it is kilobytes, and may show the options of a source."""
    logging_setup.configure("debug", style)
    error = RuntimeError("it failed\n=== Streaming Query ===\nLogical Plan:\nkeyfold {sasl.username=marker}")
    _log.error("connector FAILED", error=str(error))
    _log.debug("what failed", exc_info=error)
    line = capsys.readouterr().err
    assert "it failed" in line
    assert "marker" not in line


def test_a_key_of_a_record_is_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """Words that only resemble a secret's name stay readable."""
    logging_setup.configure("info", "json")
    _log.info("record", key="N14228", keys=3, topic="passengers")
    line = _only(capsys)
    assert (line["key"], line["keys"], line["topic"]) == ("N14228", 3, "passengers")


def test_the_console_is_plain_where_it_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """No colours in a file or a pipe; fields as name=value."""
    logging_setup.configure("info", "auto")
    _log.info("batch ingested", records=4)
    line = capsys.readouterr().err
    assert "\x1b" not in line
    assert "batch ingested" in line
    assert "records=4" in line


def test_configuring_again_does_not_double_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A command sets logging up again when it has read the worker file."""
    logging_setup.configure("info", "json")
    logging_setup.configure("info", "json")
    _log.info("once")
    assert _only(capsys)["event"] == "once"


@pytest.mark.parametrize("style", ["json", "console"])
def test_secrets_in_names_and_objects_are_hidden(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A path, an exception, a set or bytes become text in a line, and so does the name in a mapping."""
    remember_setting("LogSecret-4711-abc", is_secret=True, over_rest=False)
    logging_setup.configure("info", style)
    text = "LogSecret-4711-abc"
    objects = {"a": Path(f"/x/{text}"), "b": {text: {text}}, "c": ValueError(text), "d": text.encode(), "e": [(text,)]}
    _log.info("made", count=1, ratio=0.5, done=True, nothing=None, **objects)
    logging.getLogger("lib").warning("%s %r", ValueError(text), text.encode())
    shown = capsys.readouterr().err
    assert ("4711" in shown, shown.count(HIDDEN)) == (False, 8)
    if style == "json":
        line = json.loads(shown.splitlines()[0])
        assert [line[name] for name in ("count", "ratio", "done", "nothing")] == [1, 0.5, True, None]


NOT_TAKEN = """
import sys, threading
from connectors import logging_setup
from connectors.cli.main import app, main

class PanicException(BaseException):
    pass

class Breaks:
    def __del__(self):
        fails()

def fails():
    raise PanicException("of the server: sasl.password=geheim-4711")

@app.command()
def breaks() -> None:
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    Breaks()
    fails()

sys.argv = ["keyfold", "breaks"]
sys.exit(main())
"""


def test_what_no_handler_takes_is_masked_too() -> None:
    """Python itself would print it: the end of a thread, of a command, and what a callback raises."""
    done = subprocess.run([sys.executable, "-c", NOT_TAKEN], capture_output=True, text=True, timeout=60, check=False)
    assert "4711" not in done.stderr + done.stdout
    assert done.stderr.count(f"PanicException: of the server: sasl.password={HIDDEN}") == 3
    for event in ("a thread has ended with an error", "an error could not be raised", "error: PanicException: "):
        assert event in done.stderr
    assert done.returncode == 1


def test_what_others_say_is_one_line_of_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Librdkafka quotes brokers: neither an event nor a value may look like another line, or move the cursor."""
    logging_setup.configure("info", "console")
    logging.getLogger("librdkafka").warning("said:\n2026-11-26 [error] forged\x1b[2J\u202e")
    _log.warning("store", said="a\nb\x9b", more=["c\nd"])
    first, second = capsys.readouterr().err.splitlines()
    assert r"said:\n2026-11-26 [error] forged\x1b[2J\u202e" in first
    assert "a" in second
    assert first.isprintable()
    assert second.isprintable()
