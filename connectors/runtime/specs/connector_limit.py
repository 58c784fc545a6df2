"""Decides how many connectors a worker may have, from `connectors.max` or the process's limit of open files.

A worker that could not even start Spark with that limit is refused.
"""

from __future__ import annotations

import resource
from typing import Final

from connectors.errors import ConfigError

FILES_OF_THE_WORKER: Final = 512
"""Open files that are left to the worker itself: REST takes up to 384 for its connections, and a worker that ran ten
connectors for an hour had some 40 that were no connector's (Spark's JVM has a limit of its own)."""
FILES_OF_A_CONNECTOR: Final = 33
"""Open files of a connector that reads and publishes, as it was measured: its clients' sockets and their pipes, locks
and files of runs. One that is idle has fewer."""
LEAST: Final = 10
"""Few connectors are let in whatever the limit is: where each has little to do, they fit."""
MOST: Final = 1_000
"""Above this the limit of open files says nothing: a connector has some 22 threads, and Linux gives a machine 32,768 of
them unless it is set otherwise."""

MOST_FILES: Final = 65_536
"""The soft limit is raised no further: 1,000 connectors fit into half of it."""
LEAST_FILES: Final = 400
"""Spark's JVM has the worker's limit. It had 329 open files as it began, most of them libraries, and 363 as ten
connectors ran for an hour; with 256 it did not start."""


def most_connectors(configured: int | None, open_files: int) -> int:
    """Returns how many connectors a worker may have if its process may open `open_files` files (below 0: any number).

    `configured` is `connectors.max`, which wins if it is set.
    """
    if configured is not None:
        return configured
    if open_files < 0:
        return MOST
    return max(LEAST, min(MOST, (open_files - FILES_OF_THE_WORKER) // FILES_OF_A_CONNECTOR))


def open_files_limit() -> int:
    """Returns how many files this process may open (`ulimit -n`); -1 if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> None:
    """Raises the soft limit of open files to the hard one, as Java does (`MaxFDLimit`) and so Kafka Connect's workers.

    A service of systemd begins with a soft limit of 1,024 files, which 15 connectors use up, and a hard one of 524,288.
    The soft limit is low for programs that call select(2), which takes no file number of 1,024 or more. Spark's
    Python side calls it for two sockets (Py4J's callbacks, accumulators), which are opened while numbers are low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (hard, resource.RLIM_INFINITY):
        # A container without a limit would have Spark's Python daemons close a billion numbers at each start.
        most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def refuse_few_files(open_files: int) -> None:
    """Raises ConfigError if a worker cannot run with a limit of `open_files` files (below 0: any number)."""
    if 0 <= open_files < LEAST_FILES:
        raise ConfigError(
            f"The limit of open files is {open_files}; a worker needs {LEAST_FILES}, as Spark's JVM alone opens 363.",
            "Raise it, and the hard limit with it: `ulimit -n` in a shell, `LimitNOFILE=` of systemd, `--ulimit "
            "nofile=` of a container.",
        )
