"""Builds the index of what a writer of runs has written: one file for all its files and partitions.

Entries that do not fit into memory wait on disk in parts (`waiting.py`), each of which is sorted in memory. So memory
does not grow with keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from secrets import token_hex
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.failpoints import hit
from compactor.index.blocks import BlocksWriter, Entries, in_order
from compactor.index.section import IndexSection, fingerprint
from compactor.index.waiting import WaitingEntries
from compactor.model.key_hash import log_bits, plain_hashes
from compactor.model.record import KEY_IDENTITY, TopicPartition, as_compared
from compactor.storage.base import Storage

HELD: Final = 1_000_000
"""Entries in memory, 16 bytes each; sorting them takes several times as much. Beyond, all wait on disk.

A task with 20 million takes some 130 MiB for its index; with four times as many held, 300 MiB and as long."""

SECRET: Final = token_hex(8)
"""The secret of the hashes of all files that this process makes: 16 characters, as many as SipHash takes.

Who writes records does not know it, and cannot give many keys one hash. One for all files, so that a look-up in many
of them hashes its keys once."""


class IndexBuilder:
    """Gathers the keys of records as they are written; `write` makes the file. `held`: entries in memory at most.

    `has_spellings`: keys are compared by an identity, and each entry has the spelling of its key.
    """

    def __init__(self, held: int = HELD, *, has_spellings: bool = False) -> None:
        self._held = held
        self._has_spellings = has_spellings
        # Of each partition its number in the index, and the offset of its first record here.
        self._logs: dict[TopicPartition, tuple[int, int]] = {}
        # Entries in memory, and their number.
        self._entries: list[Entries] = []
        self._count = 0
        self._largest_delta = 0
        # The entries on disk; None while all are in memory.
        self._waiting: WaitingEntries | None = None

    def add(self, tp: TopicPartition, rows: pa.RecordBatch) -> None:
        """Adds `rows` (record.RUN) of `tp`, which come by offset; those that can be the latest of no key have no entry.

        Raises OSError if the disk for what does not fit into memory is full.
        """
        log, first = self._logs.setdefault(tp, (len(self._logs), rows["offset"][0].as_py()))
        foldable = pc.and_(pc.is_null(rows["rejected"]), pc.is_valid(rows["key"]))
        keyed = rows.select(["offset", "key", KEY_IDENTITY])
        if foldable.true_count < len(foldable):
            keyed = keyed.filter(foldable)
        if not keyed.num_rows:
            return
        deltas = keyed["offset"].to_numpy() - first
        hashes = plain_hashes(as_compared(keyed)["key"], SECRET)
        hashes ^= np.uint64(log_bits(log))
        # Without the number of the log: keys of several logs may have one spelling.
        spellings = plain_hashes(keyed["key"], SECRET) if self._has_spellings else None
        self._largest_delta = max(self._largest_delta, int(deltas[-1]))
        self._entries.append(Entries(hashes, deltas, spellings))
        self._count += len(hashes)
        if self._count > self._held:
            self._spill()

    def write(self, storage: Storage, path: str, failpoint: str | None = None) -> dict[TopicPartition, IndexSection]:
        """Writes the file `path` of `storage`, and hits `failpoint`; returns the section of each partition.

        Raises StorageError, and OSError as `add`.
        """
        writer, written = BlocksWriter(self._largest_delta, has_spellings=self._has_spellings), 0
        with storage.open_output(path) as output:
            for part in self._parts():
                written += output.write(writer.add(in_order(part)))
            rest, directory = writer.finish()
            written += output.write(rest) + output.write(directory)
        if failpoint is not None:
            hit(failpoint)
        checksum = fingerprint(directory)
        return {
            tp: IndexSection(
                path=path,
                bytes=written,
                directory_bytes=len(directory),
                checksum=checksum,
                log=log,
                first=first,
                secret=SECRET,
            )
            for tp, (log, first) in self._logs.items()
        }

    def _parts(self) -> Iterator[Entries]:
        """Yields all entries in parts that rise by hash; the entries of a part are in no order."""
        if self._waiting is None:
            yield self._taken()
            return
        with closing(self._waiting):
            self._waiting.add(self._taken())
            yield from self._waiting.parts()

    def _spill(self) -> None:
        """Moves all entries in memory to disk."""
        if self._waiting is None:
            self._waiting = WaitingEntries()
        self._waiting.add(self._taken())

    def _taken(self) -> Entries:
        """Takes the entries that are in memory out of it."""
        entries, self._entries, self._count = self._entries, [], 0
        hashes = np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in entries)])
        deltas = np.concatenate([np.empty(0, np.int64), *(part.deltas for part in entries)])
        spelled = [part.spellings for part in entries if part.spellings is not None]
        spellings = np.concatenate([np.empty(0, np.uint64), *spelled]) if self._has_spellings else None
        return Entries(hashes, deltas, spellings)
