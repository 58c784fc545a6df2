"""What ends a Spark job without saying anything about its records: a cancel, a stop, a process that is gone."""

from __future__ import annotations

import re
from typing import Final

from compactor.spark.errors import chain

_CANCELLED: Final = re.compile(
    r"SPARK_JOB_CANCELLED|Job \d+ cancelled|SparkContext was shut down|stopped SparkContext"
    r"|java\.lang\.InterruptedException"
)
_NETWORK: Final = "Py4JNetworkError"
"""By its name, so that nothing of Spark is loaded to look at an error."""

_NO_FILES: Final = re.compile(r"Python worker exited unexpectedly|java\.lang\.OutOfMemoryError|No space left on device")


def broken_off(error: BaseException) -> bool:
    """Whether the job was cancelled, or Spark's JVM is gone: then it failed for no reason of its own."""
    return any(_is_network(link) or _CANCELLED.search(str(link)) for link in chain(error))


def of_its_process(error: BaseException) -> bool:
    """Whether a process of the job died or had no room left: no damaged file does that.

    Spark's JVM reads the runs and names what it cannot read; other tasks read only what its checksum has proved.
    """
    return any(_NO_FILES.search(str(link)) for link in chain(error))


def _is_network(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or any(kind.__name__ == _NETWORK for kind in type(error).__mro__)
