"""Keys of the worker file."""

from __future__ import annotations

from typing import Final

from connectors.config import kinds
from connectors.config.key import Key, Prefix, group
from connectors.config.kinds import one_of, whole

WORKER: Final = group(
    "The worker",
    Key(
        "bootstrap.servers",
        kinds.SERVERS,
        None,
        "The brokers to begin with.",
        required=True,
    ),
    Key(
        "storage.location",
        kinds.LOCATION,
        "keyfold-data",
        "Folder of the runs and catalogs of all connectors; a relative path counts from the folder of the worker file.",
    ),
    Key(
        "spark.master",
        kinds.MASTER,
        "local[*]",
        "Where Spark runs: `local[N]`, `spark://HOST:PORT`, `k8s://…`, `yarn`.",
    ),
    Key(
        "log.level",
        one_of("debug", "info", "warning", "error"),
        "info",
        "Least level of what is logged.",
    ),
    Key(
        "log.format",
        one_of("auto", "console", "json"),
        "auto",
        "`console` for people, `json` for machines, `auto` is `console`, coloured only on a terminal.",
    ),
    Key(
        "log.cleaner.backoff.ms",
        whole(0),
        "15000",
        "How long the cleaner sleeps when there is nothing to fold.",
        "ms",
    ),
    Key(
        "log.cleaner.initial.delay.ms",
        whole(0),
        "60000",
        "How long after its start a worker waits before the first fold of the cleaner.",
        "ms",
    ),
    Key(
        "task.shutdown.graceful.timeout.ms",
        whole(0),
        "10000",
        "How long a worker that is told to end (SIGTERM) takes at most: a micro-batch that is under way may end in the "
        "first part of it, then it is broken off; what does not end at all is left, and nothing is lost by that.",
        "ms",
    ),
)

WORKER_PREFIXES: Final = (
    Prefix(
        "spark.",
        "Passed on to Spark as it is: `spark.driver.memory`. It goes to Spark's JVM in a file that only the worker's "
        "account can read; but options of the JVM (`spark.driver.extraJavaOptions`) show on its command line.",
    ),
    Prefix(
        "consumer.",
        "A setting of all consumers of all connectors, under Java's or librdkafka's name: `consumer.fetch.min.bytes`.",
    ),
    Prefix(
        "producer.",
        "The same for all producers.",
    ),
    Prefix(
        "admin.",
        "The same for all admin clients.",
    ),
)
