"""Spark's settings for the JVM that is about to start, in a file: every user can read a command line.

PySpark would give each setting to `spark-submit` as `--conf NAME=VALUE`, which `ps` shows, secrets resolved.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_USERS: Final = "SPARK_KEYFOLD_USERS_SUBMIT_ARGS"
"""What the user has set in the variable above, which is set again for each start of a JVM."""
_SHELL: Final = "pyspark-shell"


class SettingsFile:
    """Writes settings to a file that only this account can read, and names it in `environment` for PySpark."""

    def __init__(self, settings: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
        folder = tempfile.mkdtemp(prefix="keyfold-spark-")  # of mode 0700
        self.file = Path(folder, "spark.properties")
        with os.fdopen(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(properties(settings))
        users = environment.setdefault(_USERS, environment.get(_ARGUMENTS, _SHELL))
        environment[_ARGUMENTS] = submit_arguments(users, self.file)

    def remove(self) -> None:
        """Removes the file: the JVM has read it once PySpark is connected to it."""
        shutil.rmtree(self.file.parent, ignore_errors=True)


def submit_arguments(users: str, file: Path) -> str:
    """Returns the arguments for spark-submit: `users`, which the user has set, followed by `file`.

    What the user gives there as --conf wins over the file, and the file over spark-defaults.conf, as without it.
    """
    words = shlex.split(users)
    options, application = (words[:-1], words[-1:]) if words[-1:] == [_SHELL] else (words, [])
    return shlex.join([*options, "--properties-file", str(file), "--load-spark-defaults", *application])


def properties(settings: Mapping[str, str]) -> str:
    """Returns `settings` as a properties file of Java's, in ASCII."""
    from javaproperties import dumps

    return dumps(settings, timestamp=None, ensure_ascii=True)
