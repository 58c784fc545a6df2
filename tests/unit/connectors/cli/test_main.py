from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from importlib.metadata import version as installed
from pathlib import Path

import pytest

from connectors.cli import main as commands
from connectors.cli.commands import connectors
from connectors.cli.commands.run import run
from connectors.cli.docstrings import help_of
from connectors.cli.main import COMMANDS
from tests.support.cli import ROOT, connector_file, environment, execute, invoke, keep, row, worker_file

QUICK_S = 2.0
NAMES = [command.__name__ for command in COMMANDS]


def _timed(*arguments: object) -> tuple[float, float]:
    """The seconds that a command takes by the clock, and of the processor."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    execute(*arguments)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _quickest(*arguments: object, tries: int = 12) -> float:
    """The least time of some, at most until one is quick, as on a machine that has nothing else to do.

    How much longer `keyfold version` takes by the clock than of the processor tells how busy the machine is: by that
    much less each time counts. What a command waits for others is not the machine's, and counts as it is or less.
    """
    least = float("inf")
    for _ in range(tries):
        seconds, worked = _timed("version")
        busy = max(seconds / worked, 1.0)
        least = min(least, _timed(*arguments)[0] / busy)
        if least < QUICK_S:
            break
    return least


def test_the_command_line_imports_nothing_that_is_slow() -> None:
    """Neither Spark nor DuckDB, pandas, Arrow or NumPy is loaded before a command asks for it."""
    names = "pyspark", "duckdb", "pandas", "pyarrow", "numpy"
    script = f"import sys, connectors.cli.main; print([name for name in {names} if name in sys.modules])"
    python = [sys.executable, "-c", script]
    done = subprocess.run(python, env=environment(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_describe_loads_no_pandas() -> None:
    """PyArrow loads it where an array is made of a list, for 0.2 s: no module that `describe` needs does so."""
    modules = "connectors.cli.commands.describe, connectors.cli.views.describe"
    script = f"import sys, {modules}; print('pandas' in sys.modules)"
    python = [sys.executable, "-c", script]
    done = subprocess.run(python, env=environment(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_command_is_a_file_of_its_name() -> None:
    """A module whose docstring begins with `keyfold NAME` is that command, and main.py lists it."""
    files = (ROOT / "connectors" / "cli" / "commands").glob("*.py")
    assert {path.stem for path in files if path.read_text().startswith(f'"""`keyfold {path.stem}`')} == {
        *NAMES,
        *("connectors", "dlq", "erase", "snapshot"),
    }  # groups of commands


def test_version_option() -> None:
    """What scripts and package managers ask every command."""
    done = execute("--version")
    assert (done.returncode, done.stdout.split()) == (0, ["keyfold", installed("keyfold")])


def test_version_is_quick_and_names_what_is_running() -> None:
    """keyfold, Python, PySpark, confluent-kafka, librdkafka and Java, in less than two seconds."""
    done = execute("version")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
        "keyfold",
        "python",
        "pyspark",
        "confluent-kafka",
        "librdkafka",
        "java",
    ]
    assert (done.returncode, done.stderr) == (0, "")
    assert _quickest("version") < QUICK_S


def test_describe_is_quick_without_a_broker(tmp_path: Path) -> None:
    """Two seconds are the limit also where no broker answers."""
    keep(tmp_path, [row(0, b"a", b"1")])
    assert _quickest("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path)) < QUICK_S


def test_results_are_on_stdout_and_logs_on_stderr(tmp_path: Path) -> None:
    """Stdout is JSON and nothing else, also at log.level=debug."""
    keep(tmp_path, [row(0, b"a", b"1")])
    files = connector_file(tmp_path), "--worker", worker_file(tmp_path, **{"log.level": "debug"})
    done = execute("describe", *files, "--json")
    assert json.loads(done.stdout)["connector"] == "orders-keeper"
    failed = execute("dump", *files, "--topic", "nothing", "--partition", "0")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "error: " in failed.stderr


@pytest.mark.parametrize("name", ["worker.json", "configs/worker.json"])
def test_without_worker_the_usual_files_are_looked_for(tmp_path: Path, name: str) -> None:
    """worker.json of the current folder is meant, else configs/worker.json."""
    (tmp_path / "configs").mkdir()
    worker_file(tmp_path).rename(tmp_path / name)
    done = execute("describe", connector_file(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_any_worker_file_the_error_says_so(tmp_path: Path) -> None:
    """Exit code 3, the names that were looked for, and what to give."""
    done = execute("describe", connector_file(tmp_path), cwd=tmp_path)
    assert done.returncode == 3
    assert "neither worker.json nor configs/worker.json" in done.stderr
    assert "next: Give --worker FILE" in done.stderr


def test_the_environment_can_stand_for_the_worker_file(tmp_path: Path) -> None:
    """With KEYFOLD_BOOTSTRAP_SERVERS no file is needed."""
    done = execute("describe", connector_file(tmp_path), cwd=tmp_path, KEYFOLD_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["describe", pytest.param("validate", marks=pytest.mark.long)])
def test_an_unknown_variable_is_a_warning(tmp_path: Path, command: str) -> None:
    """It ends no command: it is named on stderr, with the nearest that there is."""
    files = connector_file(tmp_path), "--worker", worker_file(tmp_path)
    done = execute(command, *files, KEYFOLD_LOG_LEVLE="debug", KEYFOLD_PORT="tcp://10.0.0.11:8083")
    assert done.returncode == 0
    assert 'KEYFOLD_LOG_LEVLE: unknown variable; did you mean "KEYFOLD_LOG_LEVEL"?' in done.stderr
    assert "KEYFOLD_PORT" not in done.stderr


def test_failpoints_lists_every_step() -> None:
    """Every name that KEYFOLD_FAILPOINTS takes is there, with its step."""
    from compactor.failpoints import STEPS

    listed = [line.split()[0] for line in invoke("failpoints").stdout.splitlines()[1 : len(STEPS) + 1]]
    assert listed == list(STEPS)


@pytest.mark.parametrize("command", NAMES)
def test_every_command_takes_a_worker_file(command: str) -> None:
    """--worker is an option of every command, and every command explains itself."""
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "--worker" in result.stdout


@pytest.mark.parametrize("command", ["describe", "validate", "analyze", "snapshot", "erase"])
def test_what_reports_can_report_as_json(command: str) -> None:
    """--json is an option of the commands that report."""
    assert "--json" in invoke(command, "--help").stdout


@pytest.mark.parametrize("command", [(), *((name,) for name in NAMES)], ids=" ".join)
def test_help_speaks_to_people(command: tuple[str, ...]) -> None:
    """Flags are shown without a type, and no exception of Python's is named."""
    shown = invoke(*command, "--help").stdout
    assert "--help" in shown
    assert [word for word in ("bool", "Raises", "Error ") if word in shown] == []


def test_the_list_of_commands_says_what_each_does_in_a_sentence() -> None:
    """How a command is called stands in its own help, not in the list."""
    shown = invoke("--help").stdout
    assert [word for word in ("[--", "keyfold snapshot", "keyfold erase") if word in shown] == []


@pytest.mark.parametrize("command", ["clean", "release", "restart", "snapshot", "erase"])
def test_what_waits_for_a_worker_waits_no_longer_than_is_said(command: str) -> None:
    """--timeout is an option of the commands that may ask a worker, a minute if nothing is said."""
    shown = invoke(command, "--help").stdout
    assert "--timeout" in shown
    assert "60" in shown


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("connectors",),
        ("dlq",),
        ("snapshot",),
        ("erase",),
        ("connectors", "list"),
        ("dlq", "list"),
        *((name,) for name in NAMES),
    ],
)
def test_flags_have_no_type_in_help(command: tuple[str, ...]) -> None:
    """They take no value, in the commands of groups either."""
    assert "<bool>" not in invoke(*command, "--help").stdout.lower()


def test_help_breaks_no_line_in_the_middle() -> None:
    """A paragraph fills the width that there is: the breaks of a docstring are not those of a terminal."""
    offsets = next(each for each in connectors.app.registered_commands if each.name == "offsets")
    for text in (help_of(run), offsets.help or ""):
        assert "\n\n" in text
        assert "\n" not in text.replace("\n\n", "")


def test_commands_stand_under_headings() -> None:
    """So that a reader finds what is for looking and what changes something."""
    shown = invoke("--help").stdout
    assert set(commands.HEADINGS) <= {*NAMES, "connectors", "dlq", "erase", "snapshot"}
    assert all(f"│ {name} " in shown for name in (*NAMES, "connectors", "dlq", "erase", "snapshot"))
    assert all(f"─ {heading} ─" in shown for heading in commands.GROUPS)
