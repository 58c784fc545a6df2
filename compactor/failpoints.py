"""Points at which a test can make a step of docs/protocol.md fail.

`KEYFOLD_FAILPOINTS="name=kill|error|sleep:MS[,…]"`, read when a point is hit, so that executors and
Python workers that inherit the environment obey it too. Names are those of docs/protocol.md's steps.
An action fires every time its point is hit; `kill` is SIGKILL to the process that hits it.
With `name@N=…` it fires from the Nth hit of that process on (counted from 1).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from functools import lru_cache
from typing import Final

from compactor.errors import FailpointError

VARIABLE: Final = "KEYFOLD_FAILPOINTS"

STEPS: Final[dict[str, str]] = {
    "source.plan": "1  the source has chosen the end of a portion",
    "source.read": "2  a reading task has finished a range",
    "ingest.write": "3  a level-0 file is complete, and nothing names it yet",
    "ingest.index": "3  the index of level-0 files is complete, and nothing names it yet",
    "ingest.wait": "3w a file without the records that wait for other partitions is complete, and nothing names it yet",
    "ingest.look-up": "3a what logs keep of the batch's keys is looked up, and no file of the batch is written again",
    "ingest.admit": "3b a file without the records that came late is complete, and nothing names it yet",
    "ingest.fill": "3d a file with values that were filled is complete, and nothing names it yet",
    "ingest.before-commit": "4  all files of the batch are complete, the catalog commit has not begun",
    "ingest.after-commit": "4  the batch is in the catalog, and often the ends of its folds",
    "catalog.create": "C1 a commit's file is about to be created",
    "catalog.replace": "C1 the file of a deleted catalog that has the commit's number is about to be replaced",
    "catalog.created": "C2 the commit's file exists, the directory has not been listed again",
    "catalog.checkpoint": "C3 the commit counts, the checkpoint of its version is not written",
    "takeover.epoch": "T1 the new epoch is committed, the old transactional ids are not fenced yet",
    "takeover.fence": "T2 the stored transactional ids are initialised, positions are not read yet",
    "generation.read": "G1 positions, source and outputs are read for a change of offsets",
    "generation.write": "G2 a file of tombstones is complete, and nothing names it yet",
    "generation.carry": "G2 a file of records that outlive a truncate is complete, and nothing names it yet",
    "generation.before-commit": "G3 all tombstones are written, the catalog commit has not begun",
    "generation.after-commit": "G3 the catalog has the change, the group holds the old positions",
    "generation.position": "G4 the group holds the new positions",
    "redrive.sent": "D3 letters are in an open transaction, the group's position is not",
    "redrive.offsets": "D4 the position is in the transaction, which is not committed",
    "redrive.committed": "D5 the transaction is committed, the storage does not know it",
    "restore.sent": "S4 records are in an open transaction, the group's position is not",
    "restore.offsets": "S5 the position is in the transaction, which is not committed",
    "restore.committed": "S5 the transaction is committed",
    "rebuild.read": "R1 positions, source and outputs are read for a catalog that is lost",
    "rebuild.write": "R2 a file of records of the output is complete, and nothing names it yet",
    "rebuild.before-commit": "R2 all files are written, the catalog commit has not begun",
    "rebuild.after-commit": "R3 the catalog has the logs, the group holds the positions of the lost catalog",
    "rebuild.positions": "R4 positions of this catalog are in a transaction, which is not committed",
    "rebuild.fence": "R5 every transactional id is initialised, the positions are not compared yet",
    "rebuild.committed": "R6 the group holds positions of this catalog",
    "takeover.topics": "T3 the topics are looked up, their commit has not begun",
    "takeover.query": "T4 everything is taken over, the streaming query has not started",
    "publish.plan": "5  what to publish is decided",
    "publish.fence": "6  a publish has its producer, new or kept",
    "publish.position": "7  a publish has read the committed positions",
    "publish.begin": "8  a transaction has begun",
    "publish.late": "9  records that lose to another partition's are left out, what comes with them is not produced",
    "publish.unchanged": "9  records that change nothing are left out, nothing that comes with them is produced",
    "publish.retired": "9  tombstones of a key's other encodings are produced, its record is not",
    "publish.sent": "9  the transaction's records are flushed",
    "publish.offsets": "10 the positions are in the transaction, it is not committed",
    "publish.committed": "11 a transaction is committed",
    "publish.before-commit": "12 all transactions are committed, the catalog does not know yet",
    "publish.after-commit": "12 the catalog knows the new published offsets",
    "retain.before-commit": "13 what retention removes is decided, the catalog commit has not begun",
    "merge.write": "13a a merged run's file is complete, and nothing names it yet",
    "merge.index": "13a the index of merged runs is complete, and nothing names it yet",
    "merge.before-commit": "14a the merged runs are complete, the catalog commit has not begun",
    "clean.write": "13b a base run's file is complete, and nothing names it yet",
    "clean.index": "13b the index of base runs is complete, and nothing names it yet",
    "clean.before-commit": "14b the base run is complete, the catalog commit has not begun",
    "clean.after-commit": "14b the catalog names the base run, the old runs are unreferenced",
    "snapshot.section": "15 a sorted section of a typed snapshot is complete, and nothing names it yet",
    "snapshot.file": "15 a data file of a snapshot is complete, and nothing names it yet",
    "snapshot.write": "15 a snapshot's data files are complete, the manifest is not written",
    "table.read": "16a the newest version of a topic's table is read, nothing of the next one is written",
    "table.write": "16b the table's new files are complete, nothing names them",
    "table.commit": "16c the table equals the snapshot, whose manifest is not written",
    "snapshot.manifest": "16 the manifest is written, the catalog does not name the snapshot",
    "snapshot.before-latest": "17 the snapshot is in the catalog, LATEST still names the old one",
    "erase.begun": "E1 the receipt of an erasure is begun, no tombstone is sent",
    "erase.sent": "E2 the tombstones of an erasure are acknowledged, its receipt does not name them",
    "erase.published": "E3 the tombstones are published, nothing is folded for the erasure",
    "erase.dropped": "E5 the catalog names the snapshots to be erased no more, their folders are there",
    "erase.table": "E6 a topic's table has its newest version alone, run files that nothing names are there",
    "erase.purge": "E7 run files that nothing names are about to be removed without a grace",
    "erase.searched": "E8 all files are searched, the receipt is not signed",
    "delete.fenced": "X1 every older owner is fenced, nothing of the connector is removed",
    "delete.begun": "X2 deleting.json says what is to go, nothing is removed",
    "delete.groups": "X3 the consumer groups are removed, topics and snapshots are there",
    "delete.outputs": "X4 topics and snapshots are removed, the connector's folder is there",
    "delete.folder": "X5 of the connector's folder only deleting.json and the lock are there",
    "vacuum.delete": "18 files are about to be removed",
}

# How often each point was hit in this process, from 1 (`name@N`).
_hits: Counter[str] = Counter()


@lru_cache(maxsize=8)
def parse(text: str) -> dict[str, tuple[int, str]]:
    """Parses the variable's text. Returns for each named point the first hit that fires and the action.

    Raises ValueError for an unknown point or action.
    """
    return dict(_parse_one(part) for part in text.split(",") if part.strip())


def _parse_one(part: str) -> tuple[str, tuple[int, str]]:
    target, separator, action = part.strip().partition("=")
    name, _, nth = target.partition("@")
    known = action in ("kill", "error") or (action.startswith("sleep:") and action[6:].isdigit())
    if name not in STEPS or not separator or not known or not (nth or "1").isdigit():
        raise ValueError(
            f"{VARIABLE}: {part!r} is not NAME[@N]=kill|error|sleep:MS with a NAME of `keyfold failpoints`"
        )
    return name, (int(nth or 1), action)


def hit(name: str) -> None:
    """Does what the environment asks for at the point `name`; nothing if the variable does not name it."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    assert name in STEPS, name
    _hits[name] += 1
    first, action = parse(text).get(name, (0, ""))
    if action and _hits[name] >= first:
        act(name, action)


def hits(name: str) -> int:
    """Returns how often the point `name` was hit in this process while the variable was set: `name@N` counts on."""
    return _hits[name]


def act(name: str, action: str) -> None:
    """Does `action` (kill, error, sleep:MS) at the point `name`; raises FailpointError."""
    print(f"failpoint {name}: {action}", file=sys.stderr, flush=True)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "error":
        raise FailpointError(f"Failpoint {name} is set to error.", f"Unset {VARIABLE}.")
    time.sleep(int(action.removeprefix("sleep:")) / 1000)
