"""Says why a cluster is of no use to a worker, before anything is done there: it is not reached, or does not fit."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import structlog

from compactor.errors import KeyfoldError
from compactor.json_types import decoded_as
from compactor.spark.errors import briefly
from connectors.errors import ConfigError, SparkClusterError, SparkGoneError
from connectors.spark.executor_settings import is_cluster
from connectors.spark.jvm_start import correcting
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PACKAGES: Final = {"pyspark": "pyspark", "pyarrow": "pyarrow", "keyfold": "compactor"}
"""What has to be of one version, and the module that shows that it can be imported."""
_OTHER_PYTHON: Final = re.compile(r"different (?:minor )?version:? ?(\d+\.\d+)")
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)"')
_MISSING: Final = re.compile(r"No module named '?([\w.]+)'?")
_JAVA: Final = re.compile(r"^(?:: )?(?:[\w.$]*[.$])?(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
"""What Java says of a call that failed, in Py4J's text: the exception's class without its package, its message."""
_REFUSES: Final = ("IllegalArgumentException", "SparkIllegalArgumentException")
# Between two lines (s) that no executor has answered; there is no limit, as a full cluster may free cores at any time.
_LOG_EVERY_S: Final = 30.0
_ACTION: Final = (
    "Have the executors run this process's versions: executors.package=ship sends them its packages, "
    "spark.pyspark.python (or PYSPARK_PYTHON) names their Python (docs/scaling.md)."
)
_REACH: Final = (
    "See that its master runs at that address, is of this Spark's version, and has the same spark.authenticate.secret "
    "if it has one (docs/scaling.md); the worker's log has what Spark says."
)
_ON_ONE_MACHINE: Final = (
    "Mend what it names: room in spark.local.dir, memory, or the address that Spark listens on (SPARK_LOCAL_IP)."
)
_log = structlog.get_logger()


def check_executors(spark: SparkSession) -> None:
    """Asks the executors of `spark` for their versions.

    Waits for the first executor however long that takes, and says every 30 s that it does. Raises ConfigError, which
    names the versions that are not this process's, SparkClusterError if no executor could be asked.
    """
    master = str(spark.sparkContext.master)
    waiting = CancellableThread("executor-check", _say_waiting)
    waiting.start()
    try:
        versions = _versions(spark)
    except Exception as error:
        if (fault := fault_of(str(error))) is None:
            raise not_taken(master, error) from error
        raise ConfigError(f"Executors of {master} cannot run keyfold: {fault}.", _ACTION) from error
    finally:
        waiting.stop()
    faults = differences(versions, own_versions())
    if faults:
        raise ConfigError(f"Executors of {master} do not fit this worker: {'; '.join(faults)}.", _ACTION)


def _versions(spark: SparkSession) -> list[dict[str, str]]:
    """Returns what each of some tasks has found of its process, by name.

    They are tasks with Arrow, as all others of a worker are: their Python processes stay, and are those of the first
    work. Spark has others for tasks without Arrow, which are asked only if the first do not answer.
    """
    context = spark.sparkContext
    count, find = max(2, context.defaultParallelism), _finding(_PACKAGES)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(_with_arrow(find), "found string").collect()
    except Exception as error:  # noqa: BLE001  # what is not Arrow's fault comes again
        _log.debug("executors are asked without Arrow", error=briefly(error))
        return context.parallelize(range(count), count).map(lambda _: find()).collect()
    return [decoded_as(row["found"], dict[str, str]) for row in rows]


def not_taken(master: str, error: Exception) -> KeyfoldError:
    """Returns the error for a session that `master` did not start, or did not run a first job for, with its reason.

    It is a ConfigError if Spark refuses a setting; otherwise a SparkClusterError, or a SparkGoneError on one machine.
    """
    said = _JAVA.search(str(error))
    message = f"Spark has not started on {master}: {said[2] if said else briefly(error)}"
    if said and said[1] in _REFUSES:
        return ConfigError(message, correcting(message, os.environ))
    return SparkClusterError(message, _REACH) if is_cluster(master) else SparkGoneError(message, _ON_ONE_MACHINE)


def own_versions() -> dict[str, str]:
    """Returns the versions of this process, by name."""
    return {"python": _minor(), **{name: _installed(name) for name in _PACKAGES}}


def differences(versions: Iterable[Mapping[str, str]], own: Mapping[str, str]) -> list[str]:
    """Returns a phrase for each version among `versions`, one mapping a task, that is another than in `own`."""
    seen = [(each["host"], name, each[name], wanted) for each in versions for name, wanted in own.items()]
    return [
        f"{name} on {host} is {there}, here it is {wanted}"
        for host, name, there, wanted in dict.fromkeys(seen)
        if there != wanted
    ]


def fault_of(text: str) -> str | None:
    """Returns what the text of a failed job says of the executors' Python; None if that is not the matter."""
    if match := _OTHER_PYTHON.search(text):
        return f"their Python is {match[1]}, here it is {_minor()}"
    if match := _NO_PROGRAM.search(text):
        return f'they have no program "{match[1]}"'
    if match := _MISSING.search(text):
        return f"their Python has no module {match[1]}"
    return None


def _finding(packages: Mapping[str, str]) -> Callable[[], dict[str, str]]:
    """Returns what finds the versions of its process. It is sent as code: nothing of keyfold has to be there."""
    modules = dict(packages)

    def find() -> dict[str, str]:
        import importlib
        import platform
        import sys
        from importlib import metadata

        versions = {"host": platform.node(), "python": ".".join(map(str, sys.version_info[:2]))}
        for name, module in modules.items():
            try:
                imported = importlib.import_module(module)
                versions[name] = getattr(imported, "__version__", None) or metadata.version(name)
            except Exception as error:  # noqa: BLE001  # whatever keeps it from being imported is the answer
                versions[name] = f"not there ({type(error).__name__}: {error})"
        return versions

    return find


def _with_arrow(find: Callable[[], dict[str, str]]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a task that answers with what `find` finds, as JSON, for each batch."""

    def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [json.dumps(find())]})

    return answer


def _say_waiting(stop: threading.Event) -> None:
    waited = 0.0
    while not stop.wait(_LOG_EVERY_S):
        waited += _LOG_EVERY_S
        _log.warning(
            "no executor has answered yet",
            waited_s=round(waited),
            action="See that the cluster has free cores and memory for spark.executor.cores and "
            "spark.executor.memory, and that its machines reach this one (spark.driver.host).",
        )


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
