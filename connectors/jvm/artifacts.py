"""Fetches the embedded broker's JAR files once, from Maven into the user's cache, and checks them before each use.

`kafka-<version>.sha256` next to this file pins every file, so a directory is complete and genuine or not used.
The Ivy inside PySpark's own JARs does the fetching: nothing has to be installed for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from connectors.errors import UnreachableError
from connectors.jvm.cache import cache_with, default_cache
from connectors.jvm.java import find_java
from connectors.jvm.surroundings import java_properties, java_variables

KAFKA_VERSION: Final = "4.3.1"
SETTINGS_VARIABLE: Final = "KEYFOLD_IVY_SETTINGS"
_PINS: Final = Path(__file__).with_name(f"kafka-{KAFKA_VERSION}.sha256")
# Lines of Ivy's output in an error: the last ones say which file failed at which address.
_TAIL_LINES: Final = 15

# Kafka brings slf4j 1.7 and log4j 2, but no bridge between them: without it the broker has no log.
_IVY_MODULE: Final = f"""<ivy-module version="2.0">
  <info organisation="keyfold" module="embedded-kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def pinned_files() -> dict[str, str]:
    """Reads file name → SHA-256 (hex) of every JAR of a complete broker."""
    pairs = (line.split() for line in _PINS.read_text(encoding="utf-8").splitlines())
    return {name: digest for digest, name in pairs}


def faults(directory: Path, pins: Mapping[str, str] | None = None) -> list[str]:
    """Lists the files, by name, in which `directory` differs from the pinned set: missing, changed or additional."""
    pins = pinned_files() if pins is None else pins
    present = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    changed = sorted(name for name in pins.keys() & present if _sha256(directory / name) != pins[name])
    return sorted(pins.keys() ^ present) + changed


def ensure_kafka(
    cache: Path | None = None,
    pins: Mapping[str, str] | None = None,
    fetch: Callable[[str, Path, Path], None] | None = None,
) -> Path:
    """Returns the directory with the broker's JARs, which are fetched now if it is not complete.

    `pins`: the files by name with their SHA-256; `fetch` is called as `retrieve` is.
    Several processes may call it at once: one fetches, the others wait for it. Says on stderr what it is doing when
    it has to fetch. Raises UnreachableError when Maven's repository cannot be reached or gives other files.
    """
    name = f"kafka-{KAFKA_VERSION}"
    target = (cache or cache_with(name)) / name
    if faults(target, pins):
        target = (cache or default_cache()) / name
        with _lock(target.parent):
            if faults(target, pins):  # another process may have fetched it while this one waited
                _fetch_into(target, pins, fetch or retrieve)
    return target


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"kafka-{KAFKA_VERSION}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch_into(target: Path, pins: Mapping[str, str] | None, fetch: Callable[[str, Path, Path], None]) -> None:
    say(f"fetching Apache Kafka {KAFKA_VERSION} once into {target} ({len(pins or pinned_files())} files, 44 MB)")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        fetched = Path(scratch, "jars")
        fetch(_IVY_MODULE, Path(scratch), fetched)
        wrong = faults(fetched, pins)
        if wrong:
            raise UnreachableError(
                f"Apache Kafka {KAFKA_VERSION} came incomplete or changed: {', '.join(wrong[:5])}.",
                "Check the Maven repository (or mirror) that this machine reaches, and try again.",
            )
        shutil.rmtree(target, ignore_errors=True)
        fetched.rename(target)
    say(f"Apache Kafka {KAFKA_VERSION} is ready")


def retrieve(dependencies: str, scratch: Path, fetched: Path, settings: str | None = None) -> None:
    """Fetches what an Ivy module file `dependencies` asks for into `fetched`, with everything else below `scratch`.

    `settings` is the text of an Ivy settings file that counts if the user names none. Nothing else of the user's is
    read, and nothing is left in it. Raises UnreachableError.
    """
    module = scratch / "ivy.xml"
    module.write_text(dependencies, encoding="utf-8")
    # Relative, as Ivy takes brackets in a path for variables and optional parts.
    pattern = f"{os.path.relpath(fetched, scratch)}/[artifact]-[revision](-[classifier]).[ext]"
    where = [
        f"-Divy.default.ivy.user.dir={scratch / 'home'}",
        "-jar",
        str(_ivy_jar()),
        *ivy_settings(scratch, settings),
    ]
    what = ["-ivy", module.name, "-cache", "cache", "-retrieve", pattern, "-confs", "default"]
    command = [find_java(), *java_properties(os.environ, scratch), *where, *what]
    around = {**os.environ, **java_variables(os.environ)}
    ivy = subprocess.Popen(
        command, cwd=scratch, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output = _follow(ivy)
    if ivy.wait() != 0:
        tail = "\n".join(output[-_TAIL_LINES:])
        raise UnreachableError(
            f"{_named(dependencies)} could not be fetched from Maven:\n{tail}\n",
            f"Check that Maven Central can be reached, or name an Ivy settings file in {SETTINGS_VARIABLE}.",
        )


def _named(dependencies: str) -> str:
    """Returns the modules that an Ivy module file asks for, as a message names them."""
    modules = re.findall(r'<dependency org="([^"]+)" name="([^"]+)" rev="([^"]+)"', dependencies)
    return ", ".join(":".join(module) for module in modules)


def _follow(ivy: subprocess.Popen[str]) -> list[str]:
    """Reads Ivy's output to its end, with a counter on a terminal; returns the lines."""
    lines: list[str] = []
    assert ivy.stdout is not None
    with ivy.stdout as output:
        for line in output:
            lines.append(line.rstrip())
            if sys.stderr.isatty() and "[SUCCESSFUL" in line:
                done = sum("[SUCCESSFUL" in old for old in lines)
                print(f"  {done}/{len(pinned_files())} files", end="\r", file=sys.stderr, flush=True)
    return lines


def ivy_settings(scratch: Path, text: str | None) -> list[str]:
    """Returns Ivy's option for the user's settings file, else for one in `scratch` with `text`; none without both."""
    path = os.environ.get(SETTINGS_VARIABLE)
    if not path and text is not None:
        own = scratch / "ivysettings.xml"
        own.write_text(text, encoding="utf-8")
        path = str(own)
    return ["-settings", str(Path(path).absolute())] if path else []


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or []) if spec else []
    return next(jar for place in places for jar in Path(place, "jars").glob("ivy-*.jar"))


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def say(text: str) -> None:
    """Says on stderr what takes long, and what has come of it."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":  # `make setup` fetches the broker with it
    ensure_kafka()
