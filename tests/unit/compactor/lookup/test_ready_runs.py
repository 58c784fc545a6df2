"""What is kept ready of a log's indexes, while its runs come, are merged, cut and removed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.errors import StorageError
from compactor.index.reader import SMALL, AskedKeys
from compactor.index.section import from_text, to_text
from compactor.lookup.ready_runs import READY, ReadyLogs, runs_that_may_have
from compactor.model.log import PartitionLog, Run
from compactor.storage.base import Storage
from tests.support.memory.storage import MemoryStorage
from tests.unit.compactor.lookup.test_latest import ASKED, Kept, kept, log_of, rows_of, spoil, written

KEYS = st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"c"]), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS),
        st.tuples(st.sampled_from(["merge", "cut", "lose", "forget"]), st.integers(0, 20)),
    ),
    max_size=12,
)


class Log:
    """A log in a storage, and the keys of its records by offset; each change gives it other runs, as a commit does."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.runs: list[Run] = []
        self.keys: dict[int, bytes] = {}
        self.start = self.end = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """Appends a run."""
        self.keys |= dict(enumerate(keys, self.end))
        self.runs.append(self._written(self.end, self.end + len(keys)))
        self.end += len(keys)

    def merge(self, number: int) -> None:
        """Replaces two runs by one."""
        if len(self.runs) > 1:
            at = number % (len(self.runs) - 1)
            self.runs[at : at + 2] = [self._written(self.runs[at].start, self.runs[at + 1].end)]

    def cut(self, number: int) -> None:
        """Raises the start of the log, or of its first run if that reaches across."""
        self.start = min(self.end, self.start + number % 4)
        left = [run for run in self.runs if run.end > self.start]
        self.runs = [replace(run, start=max(run.start, self.start)) for run in left]

    def lose(self, number: int) -> None:
        """Removes the index of a run, as a disk may."""
        if self.runs:
            spoil(self.storage, self.runs[number % len(self.runs)], "lost")

    def forget(self, _: int) -> None:
        """Forgets what is ready, as others took its room."""
        READY.known.clear()

    @property
    def log(self) -> PartitionLog:
        """Its present state."""
        return log_of(self.runs, self.start)

    @property
    def expected(self) -> Kept:
        """The latest record of each key."""
        rows = rows_of([self.keys[at] for at in range(self.start, self.end)], self.start)
        return {row["key"]: (row["offset"], row["value"]) for row in rows if row["rejected"] is None}

    def _written(self, start: int, end: int) -> Run:
        rows = rows_of([self.keys[at] for at in range(start, end)], start)
        return written(self.storage, rows, is_indexed=True, others=rows_of(ASKED, 0, partition=1))


@given(STEPS)
def test_after_each_change_of_a_log_the_answer_is_the_dicts(steps: list[tuple[str, list[bytes] | int]]) -> None:
    """Whatever was ready before: runs that came, were merged, cut, or whose index is gone."""
    log = Log()
    for what, how in steps:
        getattr(log, what)(how)
        assert kept(log.storage, log.log) == log.expected


def test_look_ups_in_older_and_newer_states_at_once_each_have_the_answer_of_theirs() -> None:
    """As threads of a worker: one has taken the state before a merge, another after, and their turns alternate."""
    log, states = Log(), list[tuple[PartitionLog, Kept]]()
    for number in range(30):
        log.add([b"a", b"%d" % number, b"b"] if number % 3 else [b"ab"])
        if number % 5 == 4:
            log.merge(number)
        states.append((log.log, log.expected))
    asked = [b"a", b"b", b"ab", b"7", b"29", b"absent"]

    def ask(state: tuple[PartitionLog, Kept]) -> bool:
        return kept(log.storage, state[0], asked) == {key: at for key, at in state[1].items() if key in asked}

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, islice(cycle([*states, *reversed(states)]), 240)))


def asked_runs(storage: Storage, log: PartitionLog, *keys: bytes, logs: ReadyLogs = READY, of: Hashable = None) -> int:
    """Returns how many runs are asked for some of `keys`."""
    asked = AskedKeys(pa.array(keys, pa.binary()))
    return len(list(runs_that_may_have(storage, log.tp if of is None else of, log.kept, asked, logs)))


def test_of_many_runs_those_that_have_the_key_are_asked() -> None:
    """Also once the table was made again, as more entries came than it had room for."""
    log, absent = Log(), [b"absent %d" % number for number in range(20)]
    for number in range(60):
        log.add([b"%d-%d" % (number, key) for key in range(49)])  # each seventh of all offsets is rejected
        assert [asked_runs(log.storage, log.log, *keys) for keys in ([], absent, *([key] for key in absent))] == [
            0
        ] * 22
        for run in {0, number // 2, number}:
            present = b"%d-%d" % (run, run % 6)
            assert [asked_runs(log.storage, log.log, present, *others) for others in ([], absent)] == [1, 1]


def test_a_run_with_a_large_index_or_without_one_is_asked() -> None:
    """What is not ready says nothing."""
    log = Log()
    log.add([b"a", b"b"])
    (run,) = log.runs
    (of,) = {from_text(file.index or "") for file in run.files}
    for index in (None, to_text(replace(of, bytes=SMALL + 1))):
        log.runs.append(replace(run, files=tuple(replace(file, index=index) for file in run.files)))
    assert asked_runs(log.storage, log.log, b"absent") == 2


def index_bytes(log: Log) -> list[int]:
    """Returns the bytes of the index of each run."""
    return [from_text(run.files[0].index or "").bytes for run in log.runs]


def test_as_many_of_the_newest_runs_are_ready_as_have_room() -> None:
    """The older ones are asked, whatever they have: memory does not grow with runs."""
    log = Log()
    for number in range(10):
        log.add([b"%d" % number])
    logs = ReadyLogs(sum(index_bytes(log)[-3:]))
    assert [asked_runs(log.storage, log.log, key, logs=logs) for key in (b"absent", b"9", b"0")] == [7, 8, 7]


def test_of_many_logs_without_room_one_look_up_of_sixteen_makes_its_log_ready() -> None:
    """The others ask its runs; what is ready for another log is given up by that one alone."""
    log = Log()
    for number in range(3):
        log.add([b"%d" % number])
    logs = ReadyLogs(6_500)  # one log takes more than three quarters of it
    asked = [asked_runs(log.storage, log.log, b"absent", logs=logs, of=f"log {number}") for number in range(33)]
    assert asked == [0, 0, *([3] * 15), 0, *([3] * 15)]
    assert len(logs.known) == 1
    assert asked_runs(log.storage, log.log, b"absent", logs=logs, of="log 17") == 0


class Failing(MemoryStorage):
    """A store that does not answer."""

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        raise StorageError(f"no answer for {path}", "")


def test_a_store_that_refuses_an_index_that_need_not_be_asked_is_no_error() -> None:
    """Nothing is remembered of it, all runs may have the key, and the next look-up asks the store again."""
    log = Log()
    log.add([b"z"])
    log.add([b"y"])
    assert asked_runs(Failing(), log.log, b"absent") == 2
    assert asked_runs(log.storage, log.log, b"absent") == 0


class Requests(MemoryStorage):
    """An object store that counts the files that are opened."""

    opened = 0

    @property
    def is_folder(self) -> bool:
        return False

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        self.opened += 1
        return super().open_input(path, size)


def test_of_an_object_store_a_look_up_reads_four_indexes_ahead() -> None:
    """What is not read yet may have the key; a few look-ups later all indexes are read."""
    log = Log()
    log.storage = Requests()
    for number in range(10):
        log.add([b"%d" % number])
    steps = [(asked_runs(log.storage, log.log, b"absent"), log.storage.opened) for _ in range(4)]
    assert steps == [(6, 4), (2, 8), (0, 10), (0, 10)]
