"""The wheel that users install is complete."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.test_structure import ROOT

_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def _tracked(*paths: str) -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "-z", *paths]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("this is no git checkout")
    return [name for name in done.stdout.decode().split("\0") if name]


def test_the_wheel_has_each_file_of_the_packages(tmp_path: Path) -> None:
    """Templates, styles and scripts of the page, and whatever else the packages read, are in the wheel."""
    files = _tracked("compactor", "connectors")
    for name in (*files, "pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    made = tmp_path / "made"
    made.mkdir()
    subprocess.run([sys.executable, "-c", _BUILD, str(made)], cwd=tmp_path, capture_output=True, check=True)
    with zipfile.ZipFile(next(made.glob("*.whl"))) as wheel:
        assert set(files) - set(wheel.namelist()) == set()
