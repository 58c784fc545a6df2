"""The Spark home without zipped Python: links to what is installed, made once, mended where it is wrong."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from connectors.jvm.spark_home import JARS, ensure_home, installed


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A PySpark with what matters of it."""
    folder = tmp_path / "site-packages" / "pyspark"
    for name in ("bin", JARS, "python/lib", "work"):
        (folder / name).mkdir(parents=True)
    for name in ("bin/spark-submit", f"{JARS}/a.jar", "python/lib/pyspark.zip", "version.py"):
        (folder / name).write_text(name)
    return folder


def links(home: Path) -> dict[str, Path]:
    """What each link of the home points to."""
    return {entry.name: entry.readlink() for entry in home.iterdir()}


def test_everything_is_linked_but_what_holds_python_and_what_is_written_to(tmp_path: Path, package: Path) -> None:
    """JARs and scripts are those that are installed; the zips are not there, and `work` is the home's own."""
    home = ensure_home(package, tmp_path / "cache")
    assert home is not None
    assert links(home) == {name: package / name for name in ("bin", JARS, "version.py")}
    assert (home / JARS / "a.jar").read_text() == f"{JARS}/a.jar"


def test_another_place_or_version_has_another_home(tmp_path: Path, package: Path) -> None:
    """Two environments on one machine do not share a home."""
    other = package.rename(tmp_path / "elsewhere")
    first = ensure_home(other, tmp_path)
    other.rename(package)
    assert first != ensure_home(package, tmp_path)


def test_a_home_that_is_wrong_is_mended(tmp_path: Path, package: Path) -> None:
    """A link to another place is set right, one that is missing is made, one that should not be there goes."""
    home = ensure_home(package, tmp_path)
    assert home is not None
    before = links(home)
    (home / "bin").unlink()
    (home / JARS).unlink()
    (home / JARS).symlink_to(tmp_path / "gone")
    (home / "python").symlink_to(package / "python")
    (home / "work").mkdir()
    assert ensure_home(package, tmp_path) == home
    assert (home / "work").is_dir()
    (home / "work").rmdir()
    assert links(home) == before


def test_many_may_make_it_at_the_same_time(tmp_path: Path, package: Path) -> None:
    """Whoever gets a home gets it whole, whatever others are doing."""
    found: list[set[str]] = []

    def make() -> None:
        home = ensure_home(package, tmp_path / "cache")
        assert home is not None
        found.append({entry.name for entry in home.iterdir() if not entry.name.startswith(".")})

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [{"bin", JARS, "version.py"}] * 8


def test_without_a_cache_or_a_pyspark_there_is_none(tmp_path: Path, package: Path) -> None:
    """A cache that cannot be written to, or another kind of PySpark, is no reason not to start."""
    (tmp_path / "file").write_text("")
    assert ensure_home(package, tmp_path / "file") is None
    assert ensure_home(tmp_path, tmp_path / "cache") is None


def test_the_pyspark_that_is_installed_has_one(tmp_path: Path) -> None:
    """What Spark's own scripts and its class path need is in it, and no Python in a zip."""
    home = ensure_home(cache=tmp_path)
    assert home is not None
    assert (home / "bin" / "spark-class").is_file()
    assert list((home / JARS).glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert (home / "bin").readlink() == (installed() or tmp_path) / "bin"
