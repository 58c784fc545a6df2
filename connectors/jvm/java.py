"""Finds the Java that Spark and the embedded broker run on."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Final

from connectors.errors import ConfigError
from connectors.jvm.stderr import reason_in

# The oldest major version that Spark 4 and Kafka 4 run on.
OLDEST: Final = 17
_MEMORY: Final = re.compile(r"memory|heap|allocate|reserve|pthread_create", re.IGNORECASE)
_MORE_MEMORY: Final = "Give this process more memory, or threads (its container's limits, ulimit -v and -u)."
_ACTION: Final = f"Install Java {OLDEST} or newer (a headless JRE is enough), or set JAVA_HOME to one."


@lru_cache(maxsize=1)
def find_java() -> str:
    """Returns the `java` that JAVA_HOME names, else the first on PATH, as Spark chooses it too.

    Raises ConfigError if there is none, or one older than Spark 4 and Kafka 4 run on.
    """
    java = which_java()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME ({home})" if home else "PATH"
        raise ConfigError(f"There is no `java` in {where}.", _ACTION)
    answer = _ask_version(str(java))
    version = major_version(answer)
    if version is None:
        why = reason_in(answer.splitlines()) or "it said nothing"
        raise ConfigError(f"{java} does not run: {why}.", _action(why))
    if version < OLDEST:
        raise ConfigError(f"{java} is Java {version}.", _ACTION)
    return str(java)


def _action(why: str) -> str:
    """Returns what to do about a `java` that does not run; `why` is what it said of that."""
    given = [name for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS") if os.environ.get(name)]
    correct = [f"Correct {' and '.join(given)}."] if given else []
    more = [_MORE_MEMORY] if _MEMORY.search(why) else []
    return " ".join([*correct, *more]) or _ACTION


def which_java() -> Path | None:
    """Returns the `java` that JAVA_HOME names, else the first on PATH, of any version; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    return Path(path).absolute() if path else None  # a broker's process runs in another folder


def major_version(text: str) -> int | None:
    """Returns the major version in what `java -version` says: 17 in `openjdk version "17.0.15"`, 8 in `"1.8.0_402"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def begin_to_find() -> None:
    """Asks `java` for its version, without waiting for the answer, which the next `find_java` then takes.

    A JVM takes 0.1 s to say it, in which a command can import what it needs.
    """
    java = which_java()
    if java is not None and str(java) not in _asked and not find_java.cache_info().currsize:
        with suppress(OSError):  # `find_java` raises it
            _asked[str(java)] = _asking(str(java))


def _asking(java: str) -> Popen[str]:
    return Popen([java, "-version"], stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True)


def _ask_version(java: str) -> str:
    """Returns what Java says of itself, on stderr, or of why it does not run: some of that comes on stdout."""
    stdout, stderr = (_asked.pop(java, None) or _asking(java)).communicate()
    return stderr + stdout


_asked: Final[dict[str, Popen[str]]] = {}
"""Processes that were asked for a version by `begin_to_find`, by the path of their `java`."""
