"""A snapshot's manifest: what its files hold, and where to go on from. docs/formats.md has every field.

Offsets are the next to read. The text is canonical: same snapshot, same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from compactor.errors import FoldError
from compactor.settings import CompactionPolicy
from compactor.storage.base import Storage

VERSION: Final = 1
NAME: Final = "_manifest.json"
"""Readers that are given a whole folder skip names that begin with an underscore."""

NAMES: Final = (NAME, "manifest.json")
"""What a manifest may be called: the second name is that of older snapshots."""


class DataFile(Struct, frozen=True, kw_only=True):
    """One Parquet file; `path` is relative to the manifest's folder."""

    path: str
    bytes: int
    sha256: str
    records: int


class Column(Struct, frozen=True):
    """A column's name and Arrow type."""

    name: str
    type: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The manifest's fields in their order; times are UTC, ISO 8601. Older ones have no `catalog_id`."""

    format_version: int = VERSION
    connector: str
    catalog_id: str | None = None
    topic: str
    output_topic: str | None
    output_topic_id: str | None
    isolation_level: str = "read_committed"
    created_at: str
    resume_safe_until: str | None
    source_offsets: dict[str, int]
    output_offsets: dict[str, int]
    records: int
    tombstones_excluded: int
    policy: dict[str, str | int | float]
    schema: tuple[Column, ...]
    files: tuple[DataFile, ...]


def encode(manifest: Manifest) -> bytes:
    """`manifest` as JSON, indented by 2."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode(data: bytes) -> Manifest:
    """The manifest that `encode` made `data` of; FoldError where it is damaged or of a later format."""
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise FoldError(f"A manifest cannot be read: {error}.", "Take an older snapshot, or make a new one.") from error
    if found.format_version != VERSION:
        raise FoldError(
            f"A manifest has format {found.format_version}, this keyfold reads {VERSION}.", "Use a newer keyfold."
        )
    return found


def path_of(shelf: Storage, folder: str) -> str | None:
    """The path of the manifest of the snapshot in `folder`; None where that has none."""
    return next((path for name in NAMES if shelf.exists(path := f"{folder}/{name}")), None)


def read(shelf: Storage, folder: str) -> Manifest:
    """The manifest of the snapshot in `folder`, by whichever name. Raises MissingFileError, and as `decode` does."""
    return decode(shelf.read(path_of(shelf, folder) or f"{folder}/{NAME}"))


def iso(ms: int | None) -> str | None:
    """`ms` since the epoch as ISO 8601; None where it is None, or lies beyond the calendar's year 9999."""
    if ms is None or ms >= _CALENDAR_END_MS:
        return None
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_CALENDAR_END_MS: Final = 253_402_300_800_000


def columns(schema: pa.Schema) -> tuple[Column, ...]:
    """`schema` as a manifest says it."""
    return tuple(Column(field.name, str(field.type)) for field in schema)


def by_partition(offsets: Mapping[int, int]) -> dict[str, int]:
    """`offsets` as JSON has them, by partition number."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def named(policy: CompactionPolicy) -> dict[str, str | int | float]:
    """`policy` under Kafka's names."""
    fields: dict[str, Any] = {name.replace("_", "."): value for name, value in msgspec.structs.asdict(policy).items()}
    return {**fields, "cleanup.policy": ",".join(policy.cleanup_policy)}
