"""Which versions `make versions` tries, and which it leaves out by name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.cli import ROOT
from tests.support.versions import JAVAS, PYSPARKS, PYTHONS, attempt, combinations, constraints, find_javas


def test_what_is_not_on_this_machine_is_skipped_by_name() -> None:
    """It is neither passed over in silence nor counted as a failure."""
    tried = combinations({"3.12": Path("/python")}, {})
    assert [one.name for one in tried] == [
        *(f"python-{each}" for each in PYTHONS),
        *(f"java-{each}" for each in JAVAS),
        *(f"pyspark-{each}" for each in PYSPARKS),
    ]
    assert [one.name for one in tried if one.missing is None] == [
        "python-3.12",
        *(f"pyspark-{each}" for each in PYSPARKS),
    ]
    assert attempt(tried[0]) == "skipped: no Python 3.11 on this machine"


def test_javas_are_known_by_what_they_say_of_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name may say anything."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="99.0.1"\n')
    monkeypatch.setenv("JAVA_HOMES", str(home))
    assert find_javas()["99"] == home


def test_one_pyspark_takes_the_place_of_the_pinned_one() -> None:
    """All other versions stay."""
    assert constraints("py4j==1\npyspark==4.2.0\npytest==9\n", "4.3.0") == "py4j==1\npyspark==4.3.0\npytest==9\n"
    assert constraints("pyspark==4.2.0\n", None) == "pyspark==4.2.0\n"


def test_every_python_that_the_package_names_is_tried() -> None:
    """What is supported is what is run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert tuple(named) == PYTHONS
