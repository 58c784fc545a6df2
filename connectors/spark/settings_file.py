"""Spark's settings for the JVM that is about to start, in a file: every user can read a command line.

PySpark would give each setting to `spark-submit` as `--conf NAME=VALUE`, which `ps` shows, secrets resolved.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from connectors.errors import ConfigError
from connectors.spark.held_folder import hold, remove_left

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_USERS: Final = "SPARK_KEYFOLD_USERS_SUBMIT_ARGS"
"""What the user has set in the variable above, which is set again for each start of a JVM."""
_PREFIX: Final = "keyfold-spark-"
_NAME: Final = "spark.properties"
_SHELL: Final = "pyspark-shell"


class SettingsFile:
    """Writes settings to a file that only this account can read, and names it in `environment` for PySpark.

    One of them has to be `spark.master`. Files of workers that were killed as they started go then. Raises ConfigError
    if what the user has set there has no words.
    """

    def __init__(self, settings: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
        users = environment.setdefault(_USERS, environment.get(_ARGUMENTS, _SHELL))
        words = _words(users)  # before there is a file, which would stay
        remove_left(Path(tempfile.gettempdir()), _PREFIX, _NAME)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # of mode 0700
        self.file = folder / _NAME
        # The lock of the folder; None until it is held.
        self._held: BinaryIO | None = None
        try:
            self._held = hold(folder)
            self._write(properties(settings))
        except OSError:
            self.remove()
            raise
        environment[_ARGUMENTS] = submit_arguments(words, self.file, settings["spark.master"])

    def _write(self, text: str) -> None:
        with os.fdopen(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)

    def remove(self) -> None:
        """Removes the file: the JVM has read it once PySpark is connected to it."""
        if self._held is not None:
            self._held.close()
        shutil.rmtree(self.file.parent, ignore_errors=True)


def _words(users: str) -> list[str]:
    try:
        return shlex.split(users)
    except ValueError as error:
        raise ConfigError(
            f"{_ARGUMENTS} is no list of words: {str(error).lower()}.",  # without its text, which may hold a secret
            "Unset it, or correct it: it is split as a shell does.",
        ) from error


def submit_arguments(users: Sequence[str], file: Path, master: str) -> str:
    """Returns the arguments for spark-submit: `users`, which the user has set, followed by `master` and `file`.

    What the user gives there as --conf wins over the file, and the file over spark-defaults.conf, as without it. Of
    two masters spark-submit takes the last one: by that of another Spark it would ask for what only that one needs.
    """
    options, application = (users[:-1], users[-1:]) if users[-1:] == [_SHELL] else (users, [])
    own = ["--master", master, "--properties-file", str(file), "--load-spark-defaults"]
    return shlex.join([*options, *own, *application])


def properties(settings: Mapping[str, str]) -> str:
    """Returns `settings` as a properties file of Java's, in ASCII."""
    from javaproperties import dumps

    return dumps(settings, timestamp=None, ensure_ascii=True)
