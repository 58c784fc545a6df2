"""Runs recipes of the docs in an environment that has DuckDB with its extensions and another Spark than keyfold's.

Each version of the extensions needs its own DuckDB, and Iceberg 1.11 reads with Spark 4.1, not with 4.2. The
environment is made once, in the user's cache (500 MB).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from connectors.jvm.cache import default_cache

PACKAGES: Final = (
    "duckdb==1.4.4",
    *(f"duckdb-ext-{name}==1.4.4.20260205" for name in ("avro", "delta", "httpfs", "iceberg")),
    "pandas==2.3.3",
    "pyarrow==26.0.1",
    "pyspark==4.1.4",
)
_SPARK: Final = """spark.master local[1]
spark.ui.enabled false
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.sql.session.timeZone UTC
spark.sql.shuffle.partitions 1
spark.databricks.delta.snapshotPartitions 1
"""
"""What a small machine needs; none of it changes what is read. JARs are fetched into the environment's folder."""
_PROGRAM: Final = """
import sys
import pyarrow as pa

names = {}
exec(compile(sys.stdin.read(), "recipe", "exec"), names)
orders = names["orders"] if isinstance(names["orders"], dict) else {"orders": names["orders"]}
for name, each in orders.items():
    table = each.toArrow() if hasattr(each, "toArrow") else each.fetch_arrow_table()
    with pa.OSFile(f"{sys.argv[1]}/{name}.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
"""


def run_elsewhere(code: str, folder: Path) -> Any:
    """Runs `code` with `folder` as the working folder; returns its `orders` as a table of Arrow."""
    return run_all_elsewhere(code, folder)["orders"]


def run_all_elsewhere(code: str, folder: Path, limit_s: float = 600) -> dict[str, Any]:
    """Runs `code` likewise; returns its `orders`, several by their names or one of that name, as tables of Arrow.

    Fails if that takes more than `limit_s`.
    """
    home = _environment()
    around = {**os.environ, "HOME": str(home / "home"), "SPARK_CONF_DIR": str(home / "conf")}
    around = {name: text for name, text in around.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK_HOME"))}
    with tempfile.TemporaryDirectory() as results:
        command = [str(home / "bin" / "python"), "-c", _PROGRAM, results]
        done = subprocess.run(
            command, check=False, input=code, env=around, cwd=folder, capture_output=True, text=True, timeout=limit_s
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        files = {file.stem: file.read_bytes() for file in Path(results).glob("*.arrow")}
    return {name: pa.ipc.open_file(data).read_all() for name, data in files.items()}


def _environment() -> Path:
    """Returns the environment's folder, which is made now if it is not there."""
    name = hashlib.sha256("\n".join([sys.version, *PACKAGES, _SPARK]).encode()).hexdigest()[:12]
    home = default_cache() / f"readers-{name}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _make(home)
    return home


def _make(home: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    subprocess.run(pip, check=True)
    (extensions,) = home.glob("lib/python*/site-packages/duckdb_ext/extensions")
    (home / "home" / ".duckdb").mkdir(parents=True)
    (home / "home" / ".duckdb" / "extensions").symlink_to(extensions)
    (home / "conf").mkdir()
    ivy = [f"spark.jars.ivy {home / 'ivy'}"]
    if settings := os.environ.get("KEYFOLD_IVY_SETTINGS"):
        ivy.append(f"spark.jars.ivySettings {Path(settings).absolute()}")
    (home / "conf" / "spark-defaults.conf").write_text(_SPARK + "\n".join(ivy) + "\n", encoding="utf-8")
    (home / "complete").touch()
