"""How Spark's settings come to its JVM: in a file, not on a command line."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import javaproperties
import pytest

from connectors.spark.settings_file import SettingsFile, properties, submit_arguments
from tests.support.cli import ROOT

AWKWARD = {
    "spark.master": "local[*]",
    "spark.a": "plain",
    "spark.b c": "  blanks = : # ! around  ",
    "spark.options": '-Da="b c" -Xlog\\x\n-Y',
    "spark.password": "pä$$wörd-\U0001f511",
    "spark.none": "",
}


def test_the_file_says_what_the_settings_say() -> None:
    """Java reads every name and value as it was, whatever characters it has."""
    assert javaproperties.loads(properties(AWKWARD)).items() >= AWKWARD.items()


def test_only_the_account_can_read_the_file_and_it_is_removed() -> None:
    """The file has mode 0600 in a folder of mode 0700, and neither is left after the start."""
    environment: dict[str, str] = {}
    written = SettingsFile(AWKWARD, environment)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (written.file, written.file.parent)] == [0o600, 0o700]
    written.remove()
    assert not written.file.parent.exists()


def test_the_environment_names_the_file_only() -> None:
    """Children inherit the environment: it holds no setting, and names the file of the latest start."""
    environment: dict[str, str] = {}
    SettingsFile({"spark.master": "local", "spark.x": "marker"}, environment).remove()
    again = SettingsFile({"spark.master": "local", "spark.x": "marker"}, environment)
    again.remove()
    assert "marker" not in str(environment)
    assert shlex.split(environment["PYSPARK_SUBMIT_ARGS"]).count("--properties-file") == 1
    assert str(again.file) in environment["PYSPARK_SUBMIT_ARGS"]


_OWN = ["--master", "local[*]", "--properties-file", "/a b/f", "--load-spark-defaults"]


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (["pyspark-shell"], [*_OWN, "pyspark-shell"]),
        (["--jars", "x y.jar", "pyspark-shell"], ["--jars", "x y.jar", *_OWN, "pyspark-shell"]),
        (["--master", "yarn"], ["--master", "yarn", *_OWN]),
    ],
)
def test_what_the_user_gives_spark_submit_is_kept(users: list[str], expected: list[str]) -> None:
    """Arguments of his own in PYSPARK_SUBMIT_ARGS stay, in front of the file and of the master: the last one counts."""
    assert shlex.split(submit_arguments(users, Path("/a b/f"), "local[*]")) == expected


_SCRIPT = """
import resource, tempfile
from connectors.spark.settings_file import SettingsFile

tempfile.gettempdir()
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes}))
try:
    SettingsFile({{"spark.master": "local"}}, {{"PYSPARK_SUBMIT_ARGS": "{users}"}})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("users", "size", "said"),
    [
        ("--jars 'x", 1 << 20, "ConfigError PYSPARK_SUBMIT_ARGS is no list of words: no closing quotation."),
        ("pyspark-shell", 0, "OSError [Errno 27] File too large"),
    ],
    ids=["a quote that is not closed", "no room"],
)
def test_a_file_that_is_not_used_is_not_left(tmp_path: Path, users: str, size: int, said: str) -> None:
    """It may hold secrets, and nobody else removes it."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(bytes=size, users=users)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(said)
    assert list(tmp_path.iterdir()) == []


_KILLED = """
from connectors.spark.settings_file import SettingsFile

left = SettingsFile({"spark.master": "local"}, {})
again = SettingsFile({"spark.master": "local"}, {})
print(left.file.exists(), again.file.exists())
again.remove()
"""


def test_a_file_of_a_worker_that_was_killed_goes_with_the_next_start(tmp_path: Path) -> None:
    """It may hold secrets; one that a start still needs stays."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _KILLED],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "True True\n"
        assert len(list(tmp_path.iterdir())) == 1
