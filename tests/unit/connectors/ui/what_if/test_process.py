"""The process that counts, and its end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from compactor.errors import KeyfoldError
from connectors.config.files import load_connector, load_worker
from connectors.ui.what_if.counting_process import sent
from connectors.ui.what_if.messages import CountingStep, Question, report_of
from connectors.ui.what_if.process import COMMAND, DefectError, EndedError, count_in_process, memory_of
from tests.support.cli import connector_file, invoke, worker_file
from tests.support.kafka import wait_until
from tests.unit.connectors.cli.test_analyze import LAG, keep_orders

CHANGES = {"min.compaction.lag.ms": "0", "delete.retention.ms": "0"}
CHILD = "import json, os, sys, time; from connectors.ui.what_if import counting_process as p\n"


@pytest.fixture
def question(tmp_path: Path) -> Question:
    worker = load_worker(worker_file(tmp_path))
    return Question(worker, load_connector(connector_file(tmp_path, **LAG), worker).config, CHANGES)


def _command(body: str) -> tuple[str, ...]:
    """A counting process with something else in place of what it counts."""
    return (sys.executable, "-c", CHILD + textwrap.dedent(body))


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_figures_are_those_of_the_command(tmp_path: Path, question: Question) -> None:
    """Word for word, but for the time; and the steps are said with the partitions."""
    keep_orders(tmp_path)
    steps: list[CountingStep] = []
    report = report_of(count_in_process(question, steps.append, lambda: None))
    options = [option for key, value in CHANGES.items() for option in ("--with", f"{key}={value}")]
    files = connector_file(tmp_path, **LAG), "--worker", worker_file(tmp_path)
    told = msgspec.json.decode(invoke("analyze", *files, *options, "--json").stdout)
    shown = msgspec.json.decode(msgspec.json.encode(report))
    for each in (told, shown):
        del each["now_ms"]
        _without_times(each)
    assert shown == told
    assert [step.name for step in steps if step.name == "finding last records"]
    assert all(step.partitions in (0, 2) for step in steps)


def _without_times(value: object) -> None:
    """Leaves out the horizons that a fold would stamp now."""
    if isinstance(value, dict):
        value.pop("latest_horizon_ms", None)
        value.pop("earliest_horizon_ms", None)
        for each in value.values():
            _without_times(each)
    elif isinstance(value, list):
        for each in value:
            _without_times(each)


def test_a_refusal_has_the_words_of_the_command(question: Question) -> None:
    """Of a connector that keeps nothing yet."""
    with pytest.raises(KeyfoldError, match="keeps nothing yet"):
        count_in_process(question, lambda _: None, lambda: None)


ENDLESS = """
    def endless(*_):
        os.write(1, b'')
        with open({path!r}, "w") as file: file.write(str(os.getpid()))
        {work}
    p.analyze_without_spark = endless
    p.main()
"""


@pytest.mark.parametrize("work", ["time.sleep(600)", "while True: pass"])
def test_a_cancelled_process_is_gone(tmp_path: Path, question: Question, work: str) -> None:
    """At once, whatever it does, and no child of the worker is left."""
    path = tmp_path / "pid"
    command = _command(ENDLESS.format(path=str(path), work=work))
    with pytest.raises(EndedError, match="It was cancelled"):
        count_in_process(question, lambda _: None, lambda: "It was cancelled." if _pid(path) else None, command)
    assert not _is_alive(_pid(path))


def _pid(path: Path) -> int:
    return int((path.exists() and path.read_text()) or 0)


def test_a_process_ends_with_the_worker(tmp_path: Path, question: Question) -> None:
    """Also if that is killed: its end of the pipe is closed then."""
    path = tmp_path / "pid"
    command = _command(ENDLESS.format(path=str(path), work="time.sleep(600)"))
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(sent(question))
    wait_until(lambda: _pid(path) == child.pid, "it counts")
    child.stdin.close()
    child.stdout.close()
    assert child.wait(10) == 1


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("sys.exit(3)", KeyfoldError, r"ended by itself \(exit code 3\)"),
        ("os.kill(os.getpid(), 9)", KeyfoldError, r"ended by itself \(signal SIGKILL\)"),
        ("p.analyze_without_spark = lambda *_: 1 / 0; p.main()", DefectError, "ZeroDivisionError"),
        ("print('noise'); p.analyze_without_spark = lambda *_: 1 / 0; p.main()", ValueError, "JSON"),
        ("p.analyze_without_spark = lambda *_: print('noise') or 1 / 0; p.main()", DefectError, "ZeroDivision"),
        ("while True: os.write(1, b'x' * 65536)", KeyfoldError, "too many partitions"),
    ],
)
def test_a_process_without_an_answer_is_said(question: Question, body: str, error: type[Exception], said: str) -> None:
    """How it has ended, or what it has said that is no answer; what a library prints is none of it."""
    with pytest.raises(error, match=said):
        count_in_process(question, lambda _: None, lambda: None, _command(body))


@pytest.mark.parametrize("tail", ["sys.exit(3)", "os._exit(3)"])
def test_the_end_of_what_a_dead_process_has_said_is_logged(question: Question, tail: str) -> None:
    """However much it is: it holds up no process, and no secret is shown."""
    body = f"sys.stderr.write('x' * 500_000 + ' url=https://u:pa55@h/ the last words'); sys.stderr.flush(); {tail}"
    with capture_logs() as logs, pytest.raises(KeyfoldError, match="The worker's log says more"):
        count_in_process(question, lambda _: None, lambda: None, _command(body))
    (logged,) = logs
    assert (logged["connector"], logged["ended"]) == (question.connector.name, "exit code 3")
    assert logged["stderr"].startswith("xxx")
    assert logged["stderr"].endswith("the last words")
    assert len(logged["stderr"]) <= 4_100  # with what stands for secrets
    assert "pa55" not in logged["stderr"]


def test_a_process_that_goes_on_with_stderr_full_answers(question: Question) -> None:
    """What it says is read as it counts."""
    body = "p.analyze_without_spark = lambda *_: sys.stderr.write('x' * 500_000) and 1 / 0; p.main()"
    with pytest.raises(DefectError, match="ZeroDivision"):
        count_in_process(question, lambda _: None, lambda: None, _command(body))


def test_a_process_that_cannot_be_started_is_an_error_with_its_cause(question: Question) -> None:
    """Not a defect."""
    with pytest.raises(KeyfoldError, match=r"could not be started: .*No such file"):
        count_in_process(question, lambda _: None, lambda: None, ("/nowhere/python",))


def test_a_process_that_takes_too_much_memory_is_ended(question: Question) -> None:
    """The worker's memory is the pipeline's."""
    command = _command("held = bytearray(200 << 20); time.sleep(600)")
    with pytest.raises(KeyfoldError, match="more than 64 MiB of memory"):
        count_in_process(question, lambda _: None, lambda: None, command, most_memory=64 << 20)


def test_it_yields_to_everything_else(question: Question, tmp_path: Path) -> None:
    """The lowest priority, and the first to go if memory runs out."""
    path = tmp_path / "said"
    body = f"""
        def asked(*_):
            open({str(path)!r}, "w").write(f"{{os.nice(0)}} " + open("/proc/self/oom_score_adj").read())
        p.analyze_without_spark = asked
        p.main()
    """
    count_in_process(question, lambda _: None, lambda: None, _command(body))
    assert path.read_text().split() == ["19", "1000"]


def test_memory_of_a_process_is_its_own() -> None:
    """None if there is no such process."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    _until(lambda: memory_of(child.pid) > 1 << 20)
    child.stdin.close()
    child.wait(10)
    assert memory_of(child.pid) == 0
    assert COMMAND[-1] == "connectors.ui.what_if.counting_process"


def _until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "it has memory")
