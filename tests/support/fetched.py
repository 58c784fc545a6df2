"""Fetches what tests and benchmarks run beside keyfold from Maven: once, into the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from connectors.jvm.artifacts import retrieve
from connectors.jvm.cache import default_cache


def ivy_module(name: str, *dependencies: str) -> str:
    """Returns the Ivy module file that asks for `dependencies`, which are elements; `m:` is Maven's namespace in it."""
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="keyfold" module="{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{"".join(dependencies)}</dependencies>
</ivy-module>
"""


def dependency(organisation: str, name: str, version: str) -> str:
    """Returns the element that asks for a JAR and all that it needs."""
    return f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default->default"/>'


def ensure_jars(name: str, module: str, check: Callable[[Path], None] = lambda _: None) -> Path:
    """Returns the folder `name` of the cache with the JARs of an Ivy module file, which are fetched now if need be.

    `check` raises an error if the files in the folder that it gets are not the pinned ones.
    """

    def fetch(scratch: Path) -> Path:
        fetched = scratch / "jars"
        retrieve(module, scratch, fetched)
        check(fetched)
        return fetched

    return _ensure(name, fetch)


def ensure_unpacked(name: str, module: str, sha256: str, settings: str | None = None) -> Path:
    """Returns the folder `name` of the cache with the content of one archive, which is fetched now if need be.

    `module` is an Ivy module file that asks for it alone, `settings` an Ivy settings file; it must have that SHA-256.
    """

    def fetch(scratch: Path) -> Path:
        fetched, unpacked = scratch / "fetched", scratch / "unpacked"
        retrieve(module, scratch, fetched, settings)
        (archive,) = fetched.iterdir()
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        assert digest == sha256, "the archive is not the one that is pinned here"
        with tarfile.open(archive) as opened:
            opened.extractall(unpacked, filter="data")
        return unpacked

    return _ensure(name, fetch)


def _ensure(name: str, fetch: Callable[[Path], Path]) -> Path:
    target = default_cache() / name
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            fetched = fetch(Path(scratch))
            with suppress(FileExistsError):  # another process was quicker
                shutil.move(fetched, target)
    return target
