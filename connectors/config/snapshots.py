"""The settings of a connector's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, InstanceOf, ValidationInfo

from compactor.snapshot.partitions import PartitionField, parsed
from connectors.config.definitions import family, setting
from connectors.config.fields import (
    ANY_CASE,
    WORDS_OR_NONE,
    Allowed,
    FilePath,
    Int,
    LocationOrNone,
    Long,
    Text,
    limits_of,
    or_minus_one,
    text_of,
)
from connectors.config.flat_file import family_texts
from connectors.config.table_rules import catalog_faults

SnapshotFormat = Annotated[Literal["bytes", "typed"], ANY_CASE]
StringColumns = Annotated[
    frozenset[Literal["key", "value"]],
    WORDS_OR_NONE,
    Allowed("none, or some of key, value with commas between them", "LIST"),
]
MetadataColumns = Annotated[
    frozenset[Literal["_key", "_partition", "_offset", "_timestamp", "_headers"]],
    WORDS_OR_NONE,
    Allowed("none, or some of _key, _partition, _offset, _timestamp, _headers with commas between them", "LIST"),
]


def _partitions(raw: object, info: ValidationInfo) -> tuple[PartitionField, ...]:
    text = text_of(raw, limits_of(info))
    return () if text.lower() == "none" else parsed(text)


PartitionsOrNone = Annotated[
    tuple[InstanceOf[PartitionField], ...],
    BeforeValidator(_partitions),
    Allowed("none, or columns with commas between them, each by itself or in year(), month(), day() or hour()", "LIST"),
]
_snapshots: Final = partial(setting, group="Snapshots")


def typed_by(table: str, schema_file: Path | None, partitions: Sequence[PartitionField], of_keys: str | None) -> str:
    """Returns the setting that has effect on typed values alone, and so makes them typed; an empty text if none does.

    Partitions may be by the columns of typed keys, and then say nothing of values.
    """
    given = {
        "snapshot.table": table != "none",
        "snapshot.schema.file": schema_file is not None,
        "snapshot.partition.by": bool(partitions) and of_keys != "typed",
    }
    return next((name for name, is_given in given.items() if is_given), "")


class SnapshotConfig(BaseModel):
    """What a connector file says of snapshots."""

    snapshot_location: LocationOrNone = _snapshots("snapshot.location", "none", importance="high")
    """Folder in which snapshots are kept, as `<snapshot.location>/<name>/<topic>/`; a relative path counts from the
    folder of the connector file. `none`: no snapshots."""
    snapshot_interval_ms: Annotated[Long, or_minus_one("only at the end of `--once` and by command", least=1)] = (
        _snapshots("snapshot.interval.ms", "-1", unit="ms", importance="medium")
    )
    """Time between snapshots of a running connector, of topics that have changed. A snapshot is the folded log:
    everything that is published is fully folded first, whatever the dirty ratio."""
    snapshot_mode: Annotated[Literal["latest", "append"], ANY_CASE] = _snapshots(
        "snapshot.mode", "latest", importance="medium"
    )
    """Which records a snapshot holds: `latest` the last one of each key, `append` every record that is kept, also
    without a key. `append` goes with `cleanup.policy=delete` ([snapshots.md](snapshots.md#every-record))."""
    snapshot_retention_count: Int = _snapshots("snapshot.retention.count", "3", ge=1, importance="low")
    """How many snapshots of a topic are kept."""
    snapshot_string_columns: StringColumns = _snapshots("snapshot.string.columns", "none", importance="low")
    """Which columns of a snapshot are UTF-8 text (Parquet's STRING) instead of bytes: `key`, `value`, or `key,value`.

    If a record that is to go into the snapshot is not UTF-8 there, its topic gets no new snapshot. The log and
    `describe` name the record's partition and offset, and everything else goes on."""
    snapshot_value_format: SnapshotFormat | None = _snapshots("snapshot.value.format", None, importance="medium")
    """What a snapshot has of values: `bytes`, as they are kept, or `typed`, a column for each field
    ([snapshots.md](snapshots.md#typed-columns)).

    Not set: `typed` with `snapshot.table`, `snapshot.schema.file` or `snapshot.partition.by`. Otherwise `typed` if
    values have another converter than `keyfold.Bytes`, else `bytes`; a topic whose newest snapshot has bytes keeps
    them, and so does a connector with `snapshot.string.columns`."""
    snapshot_key_format: SnapshotFormat | None = _snapshots("snapshot.key.format", None, importance="medium")
    """The same of keys, in the column `_key`."""
    snapshot_schema_file: FilePath | None = _snapshots("snapshot.schema.file", None, importance="low")
    """A file with the Avro schema of the columns that plain JSON becomes, in place of inferred ones
    ([snapshots.md](snapshots.md#a-given-schema)); a relative path counts from the folder of the connector file.

    It is read when the connector starts, and needs `keyfold.Json` with `schemas.enable=false`. Over REST it may be one
    that `config.providers.file.param.allowed.paths` allows."""
    snapshot_metadata_columns: MetadataColumns = _snapshots(
        "snapshot.metadata.columns", "_key,_partition,_offset,_timestamp,_headers", importance="low"
    )
    """Which columns a typed snapshot has besides those of values and keys."""
    snapshot_file_bytes: Long = _snapshots("snapshot.file.bytes", "134217728", ge=1024, unit="bytes", importance="low")
    """Size at which a data file of a snapshot ends and the next begins."""
    snapshot_partition_by: PartitionsOrNone = _snapshots("snapshot.partition.by", "none", importance="low")
    """Columns by which typed snapshots and tables have partitions, with commas between them: `country`,
    `day(created)`; also `year`, `month` and `hour` ([snapshots.md](snapshots.md#partitions))."""
    snapshot_table: Annotated[Literal["none", "delta", "iceberg"], ANY_CASE] = _snapshots(
        "snapshot.table", "none", importance="medium"
    )
    """The format of a table that each snapshot makes equal to the topic's state ([tables.md](tables.md)); it has the
    columns of a typed snapshot.

    It needs `pip install 'keyfold[tables]'`."""
    snapshot_table_name: Text = _snapshots("snapshot.table.name", "${topic}", importance="low")
    """The Iceberg table of a topic: its name, or with its namespace in front of it, which is the connector's name
    otherwise. What a name may not have becomes `_`."""
    iceberg_catalog: Annotated[dict[str, str], family_texts(catalog_faults)] = family("iceberg.catalog.")
    """A property of pyiceberg's catalog: `iceberg.catalog.type`, `iceberg.catalog.uri`. Without any, tables are in an
    SQL catalog in `snapshot.location`."""

    @property
    def typed_by(self) -> str:
        """The setting besides `snapshot.value.format` that makes values typed; an empty text if none does."""
        of_keys = self.snapshot_key_format
        return typed_by(self.snapshot_table, self.snapshot_schema_file, self.snapshot_partition_by, of_keys)

    @property
    def format_of_values(self) -> SnapshotFormat | None:
        """What a snapshot has of values if a setting says so."""
        return self.snapshot_value_format or ("typed" if self.typed_by else None)
