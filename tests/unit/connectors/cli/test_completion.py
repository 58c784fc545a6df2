"""What a shell offers after the Tab key: it asks `keyfold` with variables in its environment."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import command, environment, execute


def _offered(line: str, shell: str = "bash") -> str:
    """What is offered for the last word of `line`."""
    return execute(
        _KEYFOLD_COMPLETE=f"complete_{shell}",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
        _TYPER_COMPLETE_ARGS=line,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    ).stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("keyfold des", ["describe"]),
        ("keyfold connectors res", ["restart", "resume"]),
        pytest.param("keyfold snapshot un", ["unpin"], marks=pytest.mark.long),
        ("keyfold run --on", ["--once"]),
        ("keyfold top --sort f", ["freshness"]),
    ],
)
def test_bash_is_told_what_fits(line: str, offered: list[str]) -> None:
    """Commands, those of groups, options, and the values of an option that takes few."""
    assert sorted(_offered(line).split()) == offered


@pytest.mark.parametrize("shell", ["zsh", pytest.param("fish", marks=pytest.mark.long)])
def test_other_shells_are_told_with_the_meaning(shell: str) -> None:
    """They show the help's first words next to each command."""
    told = _offered("keyfold des", shell)
    assert "describe" in told
    assert "offsets" in told


def test_bash_completes_with_the_script_that_is_shown(tmp_path: Path) -> None:
    """The line of docs/commands.md is enough; a file's name is left to bash."""
    script = execute(_KEYFOLD_COMPLETE="source_bash").stdout
    keyfold = tmp_path / "keyfold"
    keyfold.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    keyfold.chmod(0o755)
    asks = 'COMP_WORDS=(keyfold conn); COMP_CWORD=1; _keyfold_completion keyfold; echo "${COMPREPLY[@]}"'
    path = f"{tmp_path}:{environment()['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{asks}; complete -p keyfold"],
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["connectors", "complete -o default -F _keyfold_completion keyfold"]
