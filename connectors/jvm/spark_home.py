"""Makes a Spark home that has no Python in it: links to everything else of the PySpark that is installed.

Spark's JVM puts `$SPARK_HOME/python/lib/*.zip` first on the path of every Python process that it starts, and what is
imported from a zip is compiled each time: that takes a second of processor time, the installed package a quarter, for
each of the five processes that a worker begins with. Without those files they import the package.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from connectors.jvm.cache import cache_with, default_cache

JARS: Final = "jars"
"""The home's folder with Spark's JARs, on which its class path stands."""

_NOT_LINKED: Final = {"python", "work"}
"""The zipped Python; and the folder of a local cluster's output, which is no part of what was installed."""

_FRESH: Final = ".fresh-"


def ensure_home(package: Path | None = None, cache: Path | None = None) -> Path | None:
    """Returns the home for `package`, PySpark's folder, made or mended now; None if that cannot be done.

    Several processes may call it at once: all want the same links, and each is put in its place whole.
    """
    source = package or installed()
    if source is None or not (source / "bin" / "spark-submit").is_file():
        return None
    name = f"spark-{version('pyspark')}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:12]}"
    for place in [cache] if cache is not None else [cache_with(name), default_cache()]:
        with suppress(OSError):
            (place / name).mkdir(parents=True, exist_ok=True)
            _mend(place / name, {entry.name: entry for entry in source.iterdir() if entry.name not in _NOT_LINKED})
            return place / name
    return None


def installed() -> Path | None:
    """Returns the folder of the installed PySpark."""
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _mend(home: Path, wanted: dict[str, Path]) -> None:
    # A fresh one is another process's, which may be about to put it in its place.
    links = [entry for entry in home.iterdir() if entry.is_symlink() and not entry.name.startswith(_FRESH)]
    present = {entry.name: entry.readlink() for entry in links}
    for name in present.keys() - wanted.keys():
        (home / name).unlink(missing_ok=True)
    for name, target in wanted.items():
        if present.get(name) != target:
            _link(home / name, target)


def _link(link: Path, target: Path) -> None:
    fresh = link.with_name(f"{_FRESH}{secrets.token_hex(8)}")
    fresh.symlink_to(target)
    fresh.replace(link)
