"""`keyfold version`: what is running, for a report of a fault."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib import metadata

from compactor.errors import KeyfoldError
from connectors.cli.options import UnusedWorkerOption
from connectors.cli.output import say
from connectors.progress.terminal import NOTHING, table


def version(worker: UnusedWorkerOption = None) -> None:
    """Prints the versions of keyfold and of what it stands on; nothing of it is started.

    Examples:
        keyfold version
    """
    rows = [("keyfold", installed("keyfold")), ("python", platform.python_version())]
    rows += [(name, installed(name)) for name in ("pyspark", "confluent-kafka")]
    say(table(("PART", "VERSION"), [*rows, ("librdkafka", _librdkafka()), ("java", _java())]))


def installed(name: str) -> str:
    """Returns the installed version of the distribution `name`, a dash if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return NOTHING


def _librdkafka() -> str:
    import confluent_kafka

    return confluent_kafka.libversion()[0]


def _java() -> str:
    """Returns the version that `java -version` gives, or why there is none."""
    from connectors.jvm.java import find_java

    try:
        answer = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False).stderr
    except KeyfoldError as error:
        return f"{NOTHING} ({error.message.rstrip('.')})"
    match = re.search(r'version "([^"]+)', answer)
    return match[1] if match else NOTHING
