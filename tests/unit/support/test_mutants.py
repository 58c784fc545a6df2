"""The modules that `make mutants` changes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.mutants import ROOT, select

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
PATHS = ("compactor/clean/due.py", "compactor/clean/log_to_clean.py", "compactor/model/log.py")


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["log_to_clean", "due"], ["compactor/clean/log_to_clean.py", "compactor/clean/due.py"]),
        (["log"], ["compactor/model/log.py"]),
        ([], [*PATHS]),
    ],
)
def test_modules_are_given_by_the_names_of_their_files(names: list[str], paths: list[str]) -> None:
    """A name is that of a file without folder and suffix; no name stands for all modules."""
    assert [str(path) for path in select(names, PATHS)] == paths


def test_an_unknown_module_is_refused() -> None:
    """A name that no file has is an error that lists those that there are."""
    with pytest.raises(ValueError, match=r"No such module: decision\. There are due, log_to_clean, log\."):
        select(["due", "decision"], PATHS)


def test_the_settings_name_files_that_exist() -> None:
    """Each module and each test in [tool.mutmut] is a file, and no two modules have one name."""
    listed = [*SETTINGS["only_mutate"], *SETTINGS["pytest_add_cli_args_test_selection"]]
    assert [path for path in listed if not (ROOT / path).is_file()] == []
    assert len({Path(path).stem for path in SETTINGS["only_mutate"]}) == len(SETTINGS["only_mutate"])
