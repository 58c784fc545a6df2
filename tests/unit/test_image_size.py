"""The size of the image, as far as it can be told without a container engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.image_tree import (
    BASE_BYTES,
    JAVA_BYTES,
    ROOT,
    TOOLS_BYTES,
    bytes_of,
    empty_like,
    place,
    run_step,
)

MOST_BYTES = 1_000_000_000
SLIMMED_BYTES = 300_000_000
"""What step `slim` saves at least; 343 MB with PySpark 4.2."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """How large the packages are, and their folder after step `slim`: its files have lengths, and nothing in them."""
    target = tmp_path_factory.mktemp("image")
    folder = place(target, empty_like)
    before = bytes_of(folder)
    run_step("slim", target)
    return before, folder


def test_the_image_is_smaller_than_a_gigabyte(packages: tuple[int, Path]) -> None:
    """Base, tools, Java, all packages and keyfold have fewer than 1,000,000,000 bytes together."""
    own = sum(bytes_of(ROOT / name) for name in ("compactor", "connectors"))
    parts = {"packages": bytes_of(packages[1]), "keyfold": own}
    assert sum(parts.values()) + BASE_BYTES + TOOLS_BYTES + JAVA_BYTES < MOST_BYTES, parts


def test_what_no_worker_runs_is_left_out(packages: tuple[int, Path]) -> None:
    """Step `slim` takes out what it names, and it is worth it."""
    before, folder = packages
    assert before - bytes_of(folder) > SLIMMED_BYTES


def test_what_a_worker_runs_is_left(packages: tuple[int, Path]) -> None:
    """Spark's SQL, its tasks, its clusters, and what they are linked with stay."""
    jars = [path.name for path in (packages[1] / "pyspark" / "jars").iterdir()]
    kept = (
        "spark-sql_",
        "spark-kubernetes_",
        "spark-yarn_",
        "hive-storage-api-",
        "icu4j-",
        "zstd-jni-",
        "netty-tcnative",
    )
    assert [name for name in kept if not any(jar.startswith(name) for jar in jars)] == []


def test_a_name_that_is_gone_ends_the_build(tmp_path: Path) -> None:
    """A new version of Spark without a JAR that `slim` takes out is looked at before it is built."""
    (tmp_path / "lib" / "python3.11" / "site-packages" / "pyspark" / "jars").mkdir(parents=True)
    with pytest.raises(AssertionError, match="rocksdbjni"):
        run_step("slim", tmp_path)
