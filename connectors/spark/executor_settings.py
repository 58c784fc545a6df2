"""Has executors of a cluster find keyfold: in an archive that goes to them with the application, or installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Final

from connectors.spark.executor_archive import FOLDER, ExecutorArchive, ensure_archive

ARCHIVES: Final = "spark.archives"
IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
PYTHON_PATH: Final = "spark.executorEnv.PYTHONPATH"
PYTHON: Final = "spark.pyspark.python"
PYTHON_NAME: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The Python of executors if none is named: of the same minor version, wherever it is on their PATH."""
_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"
_ALIAS: Final = "keyfold"
"""The folder, in an executor's own, into which Spark unpacks the archive."""


def archive_settings(file: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with which executors get the archive `file`, added to what `settings` already say.

    The file is named by its URL: in a path Spark would take a comma or `#` for its own, and with a blank it would not
    see the alias.
    """
    archives = [*filter(None, [settings.get(ARCHIVES)]), f"{file.as_uri()}#{_ALIAS}"]
    return {ARCHIVES: ",".join(archives), PYTHON_PATH: _with_archive(settings.get(PYTHON_PATH))}


def is_cluster(master: str) -> bool:
    """Returns whether the executors of `master` are not of this machine alone."""
    return not master.startswith("local")


def ships(package: str, settings: Mapping[str, str]) -> bool:
    """Returns whether a worker on a cluster sends its executors an archive, by `executors.package` and `settings`.

    By itself (`auto`) it does so if nothing is set that may bring keyfold along.
    """
    if package == "auto":
        return not any(settings.get(name) for name in (ARCHIVES, *IMAGES))
    return package == "ship"


def prepare_executors(
    package: str,
    settings: Mapping[str, str],
    environment: MutableMapping[str, str],
    ensure: Callable[[], ExecutorArchive] = ensure_archive,
) -> dict[str, str]:
    """Returns what `settings` become on a cluster; puts the name of the executors' Python into `environment`.

    Without a name of the user's that is `python3.11`, for example, if an archive goes to the executors: the path of
    this process's own means nothing on another machine. Spark's processes on this machine go by the same name, so for
    a name without a folder this Python's is put first on their PATH. Raises ConfigError if the archive can not be
    made.
    """
    if PYTHON in settings:
        environment.setdefault(_PYTHON_VARIABLE, settings[PYTHON])
    prepared = dict(settings)
    if ships(package, settings):
        prepared |= archive_settings(ensure().file, settings)
    elif _names_archive(settings):
        prepared[PYTHON_PATH] = _with_archive(settings.get(PYTHON_PATH))
    elif _PYTHON_VARIABLE not in environment:
        return prepared
    name = environment.get(_PYTHON_VARIABLE, PYTHON_NAME)
    own = Path(sys.executable).parent
    if os.sep not in name and (own / name).exists():
        environment[_PYTHON_VARIABLE] = name
        environment["PATH"] = os.pathsep.join(filter(None, [str(own), environment.get("PATH")]))
    return prepared


def _names_archive(settings: Mapping[str, str]) -> bool:
    """Returns whether the user's own archives have one of `keyfold package`, by the folder that it is given."""
    return any(each.strip().endswith(f"#{_ALIAS}") for each in settings.get(ARCHIVES, "").split(","))


def _with_archive(path: str | None) -> str:
    own = f"./{_ALIAS}/{FOLDER}"
    return path if path and own in path.split(os.pathsep) else os.pathsep.join(filter(None, [own, path]))
