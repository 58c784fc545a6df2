"""Tells which runs of a log may have some of some keys, by what a process remembers of their indexes.

While records come a log has some hundred runs of a few records. To ask each of them takes longer than to read the
record. So what is asked of them is kept ready until the log has other runs: the entries of small index files, and a
table of the hashes in all of them, by which a key that came in none of them lately is told at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from compactor.errors import DamagedFileError, MissingFileError, StorageError
from compactor.index.blocks import FEW, Hashes, SearchedEntries
from compactor.index.reader import SMALL, AskedKeys, small_file
from compactor.index.section import IndexSection, from_text
from compactor.model.key_hash import log_bits
from compactor.model.log import Run
from compactor.remembered import Remembered
from compactor.storage.base import Storage

_READY_BYTES: Final = 64 << 20
"""Bytes of index files that are kept ready; as many as are remembered, though several logs may share a file."""

_A_RUN: Final = 200
"""Bytes of a run in what is kept ready, without its entries."""

_SPARSE: Final = 8
"""Places of a table for each entry: of keys that are in no run, one in eight is searched for in each of them."""

_FEWEST: Final = 1 << 12
"""Places that a table has at least, so that it need not be made again with each few records that come."""


_AHEAD: Final = 4
"""Index files of an object store that are read ahead by one look-up, which need not ask them; each is a request."""

_TURNS: Final = 16
"""If there is no room for what several logs have ready, one of so many look-ups makes it ready: that takes longer than
to ask the runs."""


class _ReadyRun(NamedTuple):
    """A run with the entries of its only index, None if it has more, none, or one that is large or cannot be read.

    `bits` are what distinguishes the hashes of its log in the file, made with `secret`. `waits`: its index is to be
    read by a later look-up.
    """

    run: Run
    entries: SearchedEntries | None = None
    secret: str = ""
    bits: int = 0
    waits: bool = False

    @property
    def held(self) -> int:
        """How many entries it has ready."""
        return 0 if self.entries is None else len(self.entries.hashes)


class _HashTable:
    """Says of a hash whether it may have been added; a hash of the log 0, whatever secret it is made with.

    One thread may add while others ask: a place is never taken back.
    """

    def __init__(self, runs: Sequence[_ReadyRun]) -> None:
        places = max(_FEWEST, 1 << (_SPARSE * sum(ready.held for ready in runs)).bit_length())
        self._shift = 65 - places.bit_length()
        self._places = bytearray(places)
        # Entries that may still be added: a place for every four of them is not too little yet.
        self._room = places // 4
        self.add(runs)

    def add(self, runs: Sequence[_ReadyRun]) -> bool:
        """Adds the hashes of `runs`; returns False if there is no room for them."""
        self._room -= sum(ready.held for ready in runs)
        if self._room < 0:
            return False
        for _, entries, _, bits, _ in runs:
            if entries is not None:
                places = (np.asarray(entries.hashes) ^ np.uint64(bits)) >> np.uint64(self._shift)
                np.frombuffer(self._places, np.uint8)[places] = 1
        return True

    def may_have(self, hashes: Hashes) -> Hashes:
        """Returns those of `hashes` that may have been added."""
        if len(hashes) <= FEW:  # NumPy would give the interpreter's lock away
            return hashes[[self._places[hash_ >> self._shift] != 0 for hash_ in hashes.tolist()]]
        return hashes[np.frombuffer(self._places, np.bool_)[hashes >> np.uint64(self._shift)]]

    def __len__(self) -> int:
        return len(self._places)


class _ReadyRuns(Struct, frozen=True):
    """The runs `asked`, in order from the newest to the oldest, and a `table` of the entries of those that have some.

    `others` are those that have none. `waits`: the index of some run is still to be read.
    """

    asked: tuple[Run, ...]
    runs: tuple[_ReadyRun, ...]
    others: tuple[Run, ...]
    secrets: tuple[str, ...]
    table: _HashTable
    waits: bool

    @property
    def size(self) -> int:
        """Bytes that it takes in memory."""
        return len(self.table) + sum(_A_RUN + 12 * ready.held for ready in self.runs)


class ReadyLogs:
    """Keeps logs ready, up to `most_bytes` of all and of each; threads share it."""

    def __init__(self, most_bytes: int = _READY_BYTES) -> None:
        self.most_bytes = most_bytes
        # By location and what the runs are of; what is there counts only for the very same runs.
        self.known = Remembered[_ReadyRuns](most_bytes)
        # Numbers the look-ups for which there was no room.
        self._turns = count()

    def is_in_turn(self) -> bool:
        """Returns whether a log that is not ready is to be made so: if there is room, or once in _TURNS look-ups."""
        return not self.known.is_full or next(self._turns) % _TURNS == 0


READY: Final = ReadyLogs()
"""Those of this process."""


def runs_that_may_have(
    storage: Storage, of: Hashable, runs: tuple[Run, ...], asked: AskedKeys, logs: ReadyLogs = READY
) -> Iterable[Run]:
    """Returns those of `runs`, from the newest on, of which the index does not say that they have none of the keys.

    `of` says what the runs are of, as they are kept ready among `logs` for the next call.
    """
    place = storage.location, of
    ready = logs.known.get(place)
    if ready is None and not logs.is_in_turn():
        return newest_first(runs)
    if ready is None or ready.asked != runs or ready.waits:
        try:
            ready = _made_ready(storage, runs, ready, logs.most_bytes)
        except StorageError:  # a run that has the key may be asked without that file; else the run itself says so
            return newest_first(runs)
        logs.known.drop([place])
        logs.known.put(place, ready, ready.size)
    hashes = {secret: ready.table.may_have(asked.plain_hashes(secret)) for secret in ready.secrets}
    return _searched(ready.runs, hashes) if any(map(len, hashes.values())) else ready.others


def _searched(runs: Iterable[_ReadyRun], hashes: dict[str, Hashes]) -> Iterator[Run]:
    if all(len(some) <= FEW for some in hashes.values()):
        yield from _searched_for_few(runs, {secret: some.tolist() for secret, some in hashes.items()})
        return
    for run, entries, secret, bits, _ in runs:
        if entries is None or entries.has_any(hashes[secret] ^ np.uint64(bits)):
            yield run


def _searched_for_few(runs: Iterable[_ReadyRun], hashes: dict[str, list[int]]) -> Iterator[Run]:
    """Yields the `runs` that have some of `hashes`: written out, as a key is searched for in hundreds of them."""
    for run, entries, secret, bits, _ in runs:
        if entries is None:
            yield run
            continue
        held = entries.hashes
        for hash_ in hashes[secret]:
            at = bisect_left(held, hash_ ^ bits)
            if at < len(held) and held[at] == hash_ ^ bits:
                yield run
                break


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Returns `runs` of a log from the newest to the oldest."""
    return sorted(runs, key=lambda run: run.start, reverse=True)


def _made_ready(storage: Storage, asked: tuple[Run, ...], before: _ReadyRuns | None, room: int) -> _ReadyRuns:
    """Makes the runs `asked` ready, the newest ones that have `room` bytes of index files.

    What is the same as `before` is taken over, and the table unless it is full.
    """
    known = {} if before is None else {ready.run.start: ready for ready in before.runs if not ready.waits}
    runs, table, added = [], None if before is None else before.table, list[_ReadyRun]()
    unread = count()
    for run in newest_first(asked):
        section = _only_section(run)
        room -= 0 if section is None else section.bytes
        ready = known.get(run.start)
        if room < 0:
            ready = _ReadyRun(run)
        elif ready is None or ready.run != run:
            may_read = storage.is_folder or next(unread) < _AHEAD
            ready = _ready_run(storage, run, section) if may_read else _ReadyRun(run, waits=True)
            added.append(ready)
        runs.append(ready)
    if table is None or not table.add(added):
        table = _HashTable(runs)
    secrets = dict.fromkeys(ready.secret for ready in runs if ready.entries is not None)
    others = tuple(ready.run for ready in runs if ready.entries is None)
    return _ReadyRuns(asked, tuple(runs), others, tuple(secrets), table, any(ready.waits for ready in runs))


def _ready_run(storage: Storage, run: Run, section: IndexSection | None) -> _ReadyRun:
    if section is None:
        return _ReadyRun(run)
    try:
        return _ReadyRun(run, small_file(storage, section), section.secret, log_bits(section.log))
    except (MissingFileError, DamagedFileError):  # who asks the run itself says so
        return _ReadyRun(run)


def _only_section(run: Run) -> IndexSection | None:
    """Returns the section that all files of a run have, if its file is small."""
    indexes = {file.index for file in run.files}
    index = indexes.pop() if len(indexes) == 1 else None
    section = None if index is None else from_text(index)
    return section if section is not None and section.bytes <= SMALL else None
