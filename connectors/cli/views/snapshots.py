"""What `keyfold snapshot` says, as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import UNSET, Struct

from compactor.snapshot.manifest import Misfits, Typed
from compactor.snapshot.typed_table import REST
from connectors.operations.snapshot import NOTHING_TO_SNAPSHOT, SnapshotInfo
from connectors.operations.snapshots.diff import ADDED, CHANGED, REMOVED, SnapshotDiff
from connectors.operations.snapshots.overview import ListedSnapshot, ShownSnapshot
from connectors.operations.snapshots.pin import PinResult
from connectors.operations.snapshots.verify import VerifiedSnapshot
from connectors.progress.terminal import table
from connectors.terminal_text import Readable, one_line, readable

_SIGNS: Final = {ADDED: "+", CHANGED: "~", REMOVED: "-"}
_RENAMED: Final = 20
"""Renamed columns that are shown at most: the manifest has all."""
_HEADERS: Final = ("TOPIC", "SNAPSHOT", "TAKEN", "RECORDS", "BYTES", "FORMAT", "PINNED", "NEWEST", "STATE")


def taken_text(taken: Sequence[SnapshotInfo]) -> str:
    """Says what was taken, and what of it lies in columns of its own."""
    if not taken:
        return NOTHING_TO_SNAPSHOT
    from connectors.cli.views.describe import other_snapshots_line

    rows = [(each.topic, each.id, each.records, each.bytes, each.path) for each in taken]
    lines = [other_snapshots_line(each.topic, each.other_snapshots) for each in taken if each.other_snapshots]
    lines += [f"{each.topic}: {_misfits_text(each.records, misfits)}" for each in taken for misfits in each.misfits]
    return "\n".join([table(("TOPIC", "SNAPSHOT", "RECORDS", "BYTES", "PATH"), rows), *lines])


def _misfits_text(records: int, misfits: Misfits) -> str:
    what = "key" if misfits.column == REST["key"] else "value"
    one_of = f"{misfits.records:,} of {records:,} {what}s"
    fits = "fits no column: it is" if misfits.records == 1 else "fit no column: they are"
    return f"{one_of} {fits} whole in {misfits.column}." + (f" The first: {misfits.first}" if misfits.first else "")


def list_text(listed: Sequence[ListedSnapshot], location: str) -> str:
    """Says what snapshots there are in the folder `location`."""
    if not listed:
        return f"There are no snapshots in {location}. keyfold snapshot CONNECTOR.json takes one."
    rows = [
        (
            each.topic,
            each.id,
            each.taken,
            each.records,
            each.bytes,
            f"{each.format}, append" if each.mode == "append" else each.format,
            "pinned" if each.pinned else "",
            "newest" if each.newest else "",
            each.state,
        )
        for each in listed
    ]
    return f"{table(_HEADERS, rows)}\nThey are in {location}."


def shown_text(shown: ShownSnapshot) -> str:
    """Says what a snapshot is, line by line, then its partitions and its columns."""
    said = shown.manifest
    generations = {} if said.generations is UNSET else said.generations
    partitions = sorted({*said.source_offsets, *said.output_offsets}, key=int)
    rows = [
        (name, said.source_offsets.get(name), said.output_offsets.get(name), generations.get(name, 1))
        for name in partitions
    ]
    return "\n".join(
        [
            f"Snapshot {shown.id} of topic {said.topic}, connector {said.connector}",
            *(f"  {name:<14} {text}" for name, text in _facts(shown)),
            "",
            table(("PARTITION", "SOURCE OFFSET", "OUTPUT OFFSET", "GENERATION"), rows),
            "",
            table(("COLUMN", "TYPE"), [(column.name, column.type) for column in said.schema]),
        ]
    )


def _facts(shown: ShownSnapshot) -> Iterator[tuple[str, str]]:
    said = shown.manifest
    files, size = len(said.files), sum(file.bytes for file in said.files)
    yield "folder", shown.path
    yield "taken", said.created_at + (", the newest" if shown.newest else "")
    yield "pinned", f"since {shown.pinned_at or 'an unknown time'}" if shown.pinned else "no"
    yield "records", f"{said.records:,}; tombstones left out: {said.tombstones_excluded:,}"
    yield "files", f"{files:,}, {size:,} bytes"
    yield "format", shown.format + (", every record" if said.snapshot_mode is not UNSET else "")
    if said.typed is not UNSET:
        yield from _typed_facts(said.typed)
    compared = (("key identity", said.key_identity), ("order", said.order), ("scope", said.scope), ("fill", said.fill))
    yield from ((name, value) for name, value in compared if value is not UNSET)
    yield "output", said.output_topic or "none"
    if said.output_topic:
        yield "resume until", said.resume_safe_until or "no limit"
    yield "policy", ", ".join(f"{name}={value}" for name, value in said.policy.items())
    yield "catalog", said.catalog_id or "not named"


def _typed_facts(typed: Typed) -> Iterator[tuple[str, str]]:
    if typed.converters:
        named = (f"{side} {own.get('class', 'unknown')}" for side, own in sorted(typed.converters.items()))
        yield "converters", ", ".join(named)
    if typed.partition_by:
        yield "folders by", one_line(", ".join(typed.partition_by))
    names = [f"{column} is the field {field}" for column, field in typed.renamed.items()]
    if names:
        more = f" and {len(names) - _RENAMED:,} more" if len(names) > _RENAMED else ""
        yield "renamed", one_line(", ".join(names[:_RENAMED])) + more
    for column, count in typed.unplaced.items():
        what = "key" if column == REST["key"] else "value"
        yield f"in {column}", f"{count:,} {what}{' that fits' if count == 1 else 's that fit'} no column"
        first = next((each for each in typed.first if each.column == column), None)
        if first is not None:
            yield "  the first", one_line(f"partition {first.partition}, offset {first.offset}: {first.reason}")


def verified_text(verified: Sequence[VerifiedSnapshot]) -> str:
    """Says which snapshots are sound, and which file is not what was written."""
    if not verified:
        return "There are no snapshots to verify."
    rows = [
        (each.topic, each.id, each.files, each.records, each.bytes, "DAMAGED" if each.faults else "sound")
        for each in verified
    ]
    lines = [f"{each.path}/{fault.file}: {fault.fault}" for each in verified for fault in each.faults]
    return "\n".join([table(("TOPIC", "SNAPSHOT", "FILES", "RECORDS", "BYTES", "RESULT"), rows), *lines])


def pins_text(results: Iterable[PinResult]) -> str:
    """Says which snapshots are pinned now, and which are not."""
    return "\n".join(
        f"{each.path} {'is' if each.changed else 'was'} {'pinned' if each.pinned else 'unpinned'}"
        + ("." if each.changed else " already.")
        for each in results
    )


class KeyChange(Struct, frozen=True):
    """A key that differs; what is text appears as text, other bytes as `{"base64": …}`."""

    change: str
    partition: int | None
    key: Readable


def change_value(change: str, partition: int | None, key: bytes) -> KeyChange:
    """Returns a key that differs as JSON has it."""
    return KeyChange(change, partition, readable(key))


def change_text(change: str, partition: int | None, key: bytes) -> str:
    """Returns the line of a key that differs; its partition stands in front if there are several."""
    shown = one_line(key.decode("utf-8", "backslashreplace"))
    return f"{_SIGNS[change]} {'' if partition is None else f'{partition}: '}{shown}"


def diff_text(diff: SnapshotDiff) -> str:
    """Says how many keys differ."""
    counts = ((ADDED, diff.added), (CHANGED, diff.changed), (REMOVED, diff.removed), ("same", diff.same))
    return f"{table(('KEYS', 'COUNT'), counts)}\nfrom {diff.old}\nto   {diff.new}"
