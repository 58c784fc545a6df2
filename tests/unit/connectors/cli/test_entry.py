"""Ctrl-C ends a command in one line, whenever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WHILE_IMPORTING = """
class Finder:
    def find_spec(self, name, *_):
        if name == "connectors.cli.main":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
_IN_A_COMMAND = """
import connectors.cli.main as commands
commands.main = lambda: signal.raise_signal(signal.SIGINT)
"""
_IN_A_DESTRUCTOR = """
import threading
import connectors.cli.main as commands
class Closed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def run():
    closed = Closed()
    del closed
    threading.Event().wait(20)
    return 0
commands.main = run
"""
_AT_THE_END = """
import atexit
import connectors.cli.main as commands
commands.main = lambda: 0
atexit.register(signal.raise_signal, signal.SIGINT)
"""


@pytest.mark.parametrize(
    ("moment", "code", "said"),
    [
        (_WHILE_IMPORTING, 130, "interrupted\n"),
        (_IN_A_COMMAND, 130, "interrupted\n"),
        (_IN_A_DESTRUCTOR, 130, "interrupted\n"),
        (_AT_THE_END, 0, ""),
    ],
)
def test_an_interrupt_is_told_in_one_line(moment: str, code: int, said: str) -> None:
    """While modules are imported, in a command, where Python can raise nothing, and when all is done.

    None waits for what the command waits for, which would be 20 s.
    """
    script = f"import signal, sys\n{moment}\nfrom connectors.cli.entry import main\nsys.exit(main())"
    before = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    python = [sys.executable, "-c", before + script]
    done = subprocess.run(python, capture_output=True, text=True, check=False, timeout=15)
    assert (done.returncode, done.stderr) == (code, said)


def test_who_wants_no_interrupt_gets_none() -> None:
    """With SIGINT ignored, as under nohup, a command goes on."""
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import connectors.cli.main as commands\n"
        "commands.main = lambda: signal.raise_signal(signal.SIGINT) or 3\n"
        "from connectors.cli.entry import main; sys.exit(main())"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 3


def test_the_collector_of_garbage_passes_over_the_modules_and_is_on_in_a_command() -> None:
    """It went through all of them several times in each start; of what a command makes nothing may pile up."""
    script = (
        "import gc, sys, connectors.cli.main as commands\n"
        "commands.main = lambda: gc.isenabled() and gc.get_freeze_count() > 10_000 and 3\n"
        "from connectors.cli.entry import main; sys.exit(main())"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 3


_NUMBERS = """
import os, sys
from connectors.cli import entry
import connectors.cli.main as commands

def run():
    print("out")
    print("err", file=sys.stderr)
    later = os.open(os.devnull, os.O_RDONLY)
    return 0 if later > 2 and sys.stdin.read() == "" else 9

commands.main = run
sys.exit(entry.main())
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_file_that_is_closed_is_none_for_others(closed: str) -> None:
    """What is opened later would have its number, and would be written into by what logs there."""
    script = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, _NUMBERS]
    assert subprocess.run(script, stdin=subprocess.DEVNULL, check=False, timeout=60).returncode == 0
