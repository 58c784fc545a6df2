"""Keys of the connector file: how its logs are compacted and folded, and snapshots of them."""

from __future__ import annotations

from typing import Final

from connectors.config import kinds
from connectors.config.key import Key, group
from connectors.config.kinds import FLAG, INT_MAX, minus_one_or, some_of, whole

COMPACTION: Final = group(
    "Compaction (Kafka's topic settings)",
    Key(
        "cleanup.policy",
        kinds.POLICIES,
        "compact",
        "`compact` keeps the last record of each key; `delete` also removes what is older than "
        "`retention.ms` or beyond `retention.bytes`.",
    ),
    Key(
        "min.cleanable.dirty.ratio",
        kinds.RATIO,
        "0.5",
        "A log is fully folded when the share of its bytes that are not yet folded is greater than this.",
    ),
    Key(
        "min.compaction.lag.ms",
        whole(0),
        "0",
        "A record younger than this is not folded. **As the output carries only what may be folded, this "
        "is also how long a record waits before it is published.**",
        "ms",
    ),
    Key(
        "max.compaction.lag.ms",
        whole(1),
        "9223372036854775807",
        "A record older than this is folded whatever the dirty ratio. Not less than `min.compaction.lag.ms`.",
        "ms",
    ),
    Key(
        "delete.retention.ms",
        whole(0),
        "86400000",
        "How long a tombstone is kept after the first full fold that meets it.",
        "ms",
    ),
    Key(
        "retention.ms",
        minus_one_or(0, "no limit"),
        "-1",
        "Age at which records are removed under `cleanup.policy=compact,delete`.",
        "ms",
    ),
    Key(
        "retention.bytes",
        minus_one_or(0, "no limit"),
        "-1",
        "Bytes per partition beyond which the oldest records are removed under `cleanup.policy=compact,delete`.",
        "bytes",
    ),
    Key(
        "segment.bytes",
        whole(1024, INT_MAX),
        "134217728",
        "Size at which a file of a run ends and the next begins. keyfold's files have no index files "
        "beside them, so it may be smaller than the 1 MiB that Kafka 4 asks for; under 1 KiB there would "
        "be a file for nearly each record.",
        "bytes",
    ),
)

FOLD: Final = group(
    "Folding",
    Key(
        "fold.level0.files",
        whole(2, INT_MAX),
        "32",
        "This many level-0 runs of a log are folded into one run of level 1.",
    ),
    Key(
        "fold.tier.runs",
        whole(2, INT_MAX),
        "10",
        "This many neighbouring runs of a similar size are folded into one.",
    ),
    Key(
        "fold.run.max.bytes",
        whole(1),
        "137438953472",
        "A run larger than this is rewritten by full folds only.",
        "bytes",
    ),
    Key(
        "fold.full.interval.ms",
        whole(1),
        "86400000",
        "After this time a log with anything to fold is fully folded.",
        "ms",
    ),
    Key(
        "fold.io.max.bytes.per.second",
        whole(1, also=("unlimited",)),
        "unlimited",
        "Upper bound of what folds read and write together.",
        "bytes/s",
    ),
    Key(
        "bootstrap.fold.enable",
        FLAG,
        "true",
        "Fold the backlog that a topic has when it is first seen before anything of it is published, so "
        "that a reader of a fresh output topic gets each key once.",
    ),
)

SNAPSHOT: Final = group(
    "Snapshots",
    Key(
        "snapshot.location",
        kinds.OPTIONAL_LOCATION,
        "none",
        "Folder in which snapshots are kept, as `<snapshot.location>/<name>/<topic>/`; a relative path counts from the "
        "folder of the connector file. `none`: no snapshots.",
    ),
    Key(
        "snapshot.interval.ms",
        minus_one_or(1, "only at the end of `--once` and by command"),
        "-1",
        "Time between snapshots of a running connector. A snapshot is the folded log: everything that is published is "
        "fully folded first, whatever the dirty ratio.",
        "ms",
    ),
    Key(
        "snapshot.retention.count",
        whole(1, INT_MAX),
        "3",
        "How many snapshots of a topic are kept.",
    ),
    Key(
        "snapshot.string.columns",
        some_of("key", "value"),
        "none",
        "Which columns of a snapshot are UTF-8 text (Parquet's STRING) instead of bytes: `key`, `value`, or "
        "`key,value`. Where a record that is to go into the snapshot is not UTF-8 there, its topic gets no new "
        "snapshot: the log and `describe` name the record's partition and offset, and everything else goes on.",
    ),
)
