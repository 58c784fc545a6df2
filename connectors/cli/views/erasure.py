"""Texts of `keyfold erase`: what would be done, what was done, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from compactor.model.times import moment
from connectors.counted import counted
from connectors.operations.erase.receipt import MOST_FINDINGS

if TYPE_CHECKING:
    from connectors.operations.erase.begin import ErasurePlan
    from connectors.operations.erase.receipt import Elsewhere, Finding
    from connectors.operations.erase.run import Erasure
    from connectors.operations.erase.verify import VerifiedErasure

_NAMED: Final = 20
"""Files that are named at most; JSON has all."""
_STATES: Final = {
    "complete": "No value and no tombstone of the keys is left in keyfold's files.",
    "pending": "No value of the keys is left. The keys stay in their tombstones until these may go.",
    "incomplete": "Something is left. Run the same command again; what it names says why.",
}
_WHAT: Final = {
    "value": "a value",
    "tombstone": "a tombstone",
    "rewritten": "a value that came after the tombstone",
    "bytes": "the bytes of a key",
    "unsearched": "cannot be searched",
    "uncompared": "its keys cannot be compared, and its version is from after the tombstones",
    "unfinished": "left by a writer that died",
    "foreign": "a snapshot of another catalog",
}
_REASONS: Final = {"value": "it has a value of a key", "unsearched": "its keys cannot be compared, or read"}


def plan_text(plan: ErasurePlan) -> str:
    """Says what an erasure would do."""
    with_one = counted(len(plan.tombstones), "key has", "keys have")
    lines = [
        f"{counted(len(plan.values), 'value')} would get a tombstone, {with_one} one in a partition.",
        *[f"{plan.events:,} of these would get it by a delete event of Debezium."] * (plan.events > 0),
        f"Keys of which no log has anything: {len(plan.absent):,}.",
        *(f"Of this key: {each.decode(errors='backslashreplace')}" for each in plan.absent[:_NAMED]),
        *(f"{each.topic}-{each.partition}: a value at offset {each.offset}" for each in plan.values[:_NAMED]),
        *(
            f"Snapshot {each.topic}/{each.id} would go: {_REASONS[each.why]}{', and it is pinned' * each.pinned}."
            for each in plan.snapshots
        ),
        *(
            f"Snapshot {each.topic}/{each.id} would stay: {_REASONS[each.why]}, and no log of its topic has a key."
            for each in plan.unsearched
        ),
        *(f"Older versions of the table of {topic} would go: they have, or may have, a key." for topic in plan.tables),
    ]
    return "\n".join(lines)


def erased_text(done: Erasure) -> str:
    """Says what an erasure has done, and what is left."""
    receipt = done.signed.receipt
    sent = sum(each.sent for each in receipt.tombstones)
    done_text = (
        f"{counted(len(receipt.keys), 'key')}, {counted(sent, 'tombstone')} sent, "
        f"{counted(len(receipt.snapshots_removed), 'snapshot')} and {counted(receipt.run_files_removed, 'run file')} "
        f"removed, {counted(sum(receipt.searched.values()), 'file')} searched."
    )
    lines = [
        _STATES[receipt.state],
        done_text,
        *([_absent_text(len(receipt.absent))] if receipt.absent else []),
        *(f"Older versions of the table of {topic} stay: {why}." for topic, why in receipt.held.items()),
        *_findings(receipt.findings),
        *_elsewhere(receipt.elsewhere),
        f"Receipt: {done.location}",
    ]
    return "\n".join(lines)


def next_step(done: Erasure) -> str | None:
    """Returns what to do next after an erasure, None if nothing is left to do."""
    match done.signed.receipt.state:
        case "complete":
            return None
        case "pending":
            return f"keyfold erase verify {done.location} says later whether all is gone; until then it ends with 6."
        case _:
            return "Run the same command again; docs/erasure.md says what may hold files back."


def _absent_text(absent: int) -> str:
    are = "it is written. --dry-run names it" if absent == 1 else "they are written. --dry-run names them"
    return f"No log had anything of {counted(absent, 'key')}: check how {are}."


def verified_text(verified: VerifiedErasure) -> str:
    """Says whether a receipt is genuine, and what there is now."""
    signature = (
        "The signature is valid." if verified.fault is None else f"The signature does not count: {verified.fault}."
    )
    bytes_too = "" if verified.searches_bytes else " Without the keys, only columns of keys were compared."
    return "\n".join(
        [
            signature,
            _STATES[verified.state],
            f"{counted(sum(verified.searched.values()), 'file')} searched.{bytes_too}",
            *_findings(verified.findings),
        ]
    )


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    tombstones = [each for each in findings if each.what == "tombstone"]
    if tombstones:
        times = [each.until_ms for each in tombstones]
        known = [time for time in times if time is not None]
        is_one = len(tombstones) == 1
        which, them = ("until", "it") if is_one else ("the last until", "them")
        until = f"{which} {moment(max(known))} or the clean after it" if known else f"until a clean stamps {them}"
        more = " or more" if len(findings) >= MOST_FINDINGS else ""
        yield f"{counted(len(tombstones), 'tombstone')}{more} {'is' if is_one else 'are'} kept, {until}."
    others = [each for each in findings if each.what != "tombstone"]
    for each in others[:_NAMED]:
        where = "" if each.offset is None else f", {each.topic}-{each.partition} at offset {each.offset}"
        yield f"{each.file}: {_WHAT[each.what]}{where}"
    for what, count in Counter(each.what for each in others[_NAMED:]).items():
        yield f"And {count:,} more: {_WHAT[what]}."


def _elsewhere(places: Iterable[Elsewhere]) -> Iterator[str]:
    for each in places:
        until = "" if each.until_ms is None else f" until {moment(each.until_ms)}"
        yield f"Elsewhere, {each.what} {each.name}{until}: {each.note}"
