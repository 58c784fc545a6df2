"""Where nothing has changed since the newest snapshot it is copied; `--once` leaves it as it is while it is fresh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.errors import SnapshotError, SnapshotStorageError, StoppedError
from compactor.settings import CompactionPolicy
from compactor.snapshot import listing, location, manifest
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000


class Shelf(LocalStorage):
    """A snapshot location in a folder, which a test may have look and work as a store does."""

    is_a_folder = copies = True
    empties = False
    """Whether a copy makes an empty file."""

    @property
    def is_folder(self) -> bool:
        return self.is_a_folder

    @property
    def copies_files(self) -> bool:
        return self.copies

    def copy(self, source: str, target: str) -> None:
        assert self.copies
        if self.empties:
            self.write(target, b"")
        else:
            super().copy(source, target)


class Repeated:
    """A connector with records of topic t that are published and folded, and its snapshot location."""

    def __init__(self, folder: Path) -> None:
        self.connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), folder / "store")
        self.shelf = Shelf(str(folder / "snapshots"))
        self.place = FailingStorage(self.shelf)
        self.spark = self.connector.spark
        self.broker = MemoryBroker(MemoryStorage())
        self.broker.safe_ms = DAY
        self.settings = self.connector.settings
        self.add(row(0, 0, b"a", b"1"), row(0, 1, b"b", b"2"), row(0, 2, b"c", None))

    def add(self, *rows: Any) -> None:
        """Takes records in, publishes and folds them."""
        self.connector.ingest(list(rows))
        self.connector.publish()
        self.connector.cleaner.clean(0)

    @property
    def snapshots(self) -> Snapshots:
        """What takes them, as a run of a connector has it."""
        parts = (self.spark, self.connector.catalog, self.connector.quarantine)
        return Snapshots(*parts, self.broker, self.settings, self.place, frozenset)

    def take(self, now_ms: int, *, again: bool = False) -> int:
        """Takes a snapshot; returns how many were taken."""
        return len(self.snapshots.take(now_ms, again=again))

    @property
    def folder(self) -> str:
        """Where the newest snapshot lies."""
        return self.connector.catalog.state.snapshots[-1].path

    def copy(self, now_ms: int) -> int:
        """Takes a snapshot where no Spark job can be run; returns how many were taken."""
        self.spark = cast("SparkSession", None)
        try:
            return self.take(now_ms, again=True)
        finally:
            self.spark = self.connector.spark

    def data(self, folder: str) -> dict[str, bytes]:
        """Reads all files of a snapshot but its manifest."""
        found = {info.path.removeprefix(folder): self.place.read(info.path) for info in self.place.walk(folder)}
        return {path: content for path, content in found.items() if not path.endswith(manifest.NAME)}

    @property
    def first_file(self) -> str:
        """The first data file of the newest snapshot, in its folder."""
        return manifest.read(self.place, self.folder).files[0].path

    def ids(self) -> list[str]:
        """Lists the snapshots in the location, complete or not."""
        return list(listing.list_ids(self.place, self.connector.catalog.state, "t"))

    def lose(self, name: str) -> None:
        """Deletes a file of the newest snapshot."""
        self.place.delete(f"{self.folder}/{name}")

    def cut(self) -> None:
        """Takes the last byte of the newest snapshot's first data file."""
        path = f"{self.folder}/{self.first_file}"
        self.place.write(path, self.place.read(path)[:-1])


Change: TypeAlias = Callable[[Repeated], object]


def _set(field: str, value: Any) -> Change:
    def change(repeated: Repeated) -> None:
        repeated.settings = replace(repeated.settings, **{field: value})

    return change


def _safe(ms: int | None) -> Change:
    return lambda repeated: setattr(repeated.broker, "safe_ms", ms)


@pytest.fixture
def repeated(tmp_path: Path) -> Repeated:
    return Repeated(tmp_path)


def test_a_snapshot_is_not_repeated_where_nothing_has_changed(repeated: Repeated) -> None:
    """Its files and its commit stay the only ones; a command's snapshot is taken all the same."""
    assert repeated.take(1000) == 1
    before = repeated.connector.catalog.version
    assert repeated.take(2000) == 0
    assert repeated.connector.catalog.version == before
    assert repeated.take(3000, again=True) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda repeated: repeated.add(row(0, 3, b"d", b"3")), id="another record"),
        pytest.param(lambda repeated: repeated.lose(manifest.NAME), id="no manifest"),
        pytest.param(lambda repeated: repeated.lose(repeated.first_file), id="no data"),
        pytest.param(lambda repeated: repeated.cut(), id="data that is cut off"),
        pytest.param(_set("snapshot_string_columns", frozenset({"value"})), id="other columns"),
        pytest.param(_set("policy", CompactionPolicy(delete_retention_ms=1)), id="another policy"),
        pytest.param(_safe(None), id="no end of the time to go on"),
    ],
)
def test_a_snapshot_that_would_differ_is_taken(repeated: Repeated, change: Change) -> None:
    """Whatever differs, of its records, of what its manifest says, or of what is left of its files."""
    repeated.take(1000)
    change(repeated)
    with pytest.raises(SnapshotError, match="sparkContext"):
        repeated.copy(2000)
    assert repeated.take(2000) == 1
    assert repeated.take(3000) == 0


def test_a_snapshot_is_repeated_where_readers_have_more_time_now(repeated: Repeated) -> None:
    """Less than half of the time is left that a new manifest would promise; the data are the same."""
    repeated.take(1000)
    _safe(2 * DAY)(repeated)
    assert repeated.take(2000) == 1
    assert repeated.take(3000) == 0


def test_an_idle_topic_keeps_its_snapshots(repeated: Repeated) -> None:
    """By interval it is looked at, and none is taken that pushes older ones out, until something has changed."""
    repeated.settings = replace(repeated.settings, snapshot_interval_ms=100, snapshot_retention_count=2)
    repeated.take(0)
    repeated.add(row(0, 3, b"d", b"3"))
    repeated.take(50)
    before, snapshots = repeated.ids(), repeated.snapshots
    looks: list[int] = []
    for now_ms in range(50, 1_050, 10):
        if snapshots.due(now_ms):
            looks.append(now_ms)
            assert snapshots.take(now_ms, asked=False, again=False) == ()
    assert (looks, repeated.ids()) == ([*range(150, 1_050, 100)], before)
    repeated.add(row(0, 4, b"e", b"4"))
    assert (snapshots.due(1_049), snapshots.due(1_050)) == (False, True)
    assert len(snapshots.take(1_050, asked=False, again=False)) == 1
    assert (snapshots.due(1_149), snapshots.due(1_150)) == (False, True)


def test_a_location_that_answers_again_is_no_failure_though_nothing_has_changed(repeated: Repeated) -> None:
    """What `describe` shows of it is over with the next look."""
    repeated.settings = replace(repeated.settings, snapshot_interval_ms=100)
    repeated.take(0)
    snapshots = repeated.snapshots
    snapshots.failed(SnapshotStorageError("away"), 100)
    assert location.read_note(repeated.connector.storage) is not None
    assert snapshots.take(DAY // 4, asked=False, again=False) == ()
    assert location.read_note(repeated.connector.storage) is None


@pytest.mark.parametrize(("since_ms", "taken"), [(DAY // 2, 0), (DAY // 2 + 1, 1), (3 * DAY, 1)])
def test_a_snapshot_is_taken_anew_before_readers_run_out_of_time(repeated: Repeated, since_ms: int, taken: int) -> None:
    """Once half of the time is over in which the output can be resumed from where it ends."""
    repeated.take(0)
    assert repeated.take(since_ms) == taken


def test_an_unchanged_snapshot_is_copied_without_a_job(repeated: Repeated) -> None:
    """Byte by byte; its manifest says the same but for its times, and the catalog and LATEST have the new one."""
    repeated.take(1000)
    first = repeated.folder
    assert repeated.copy(2000) == 1
    second = repeated.folder
    assert first != second
    assert len(repeated.data(first)) == 2
    assert repeated.data(first) == repeated.data(second)
    older, newer = (manifest.read(repeated.place, one) for one in (first, second))
    assert (newer.created_at, newer.resume_safe_until) != (older.created_at, older.resume_safe_until)
    assert replace(newer, created_at=older.created_at, resume_safe_until=older.resume_safe_until) == older
    kept = repeated.connector.catalog.state.snapshots
    assert replace(kept[1], id=kept[0].id, path=first, created_ms=kept[0].created_ms) == kept[0]
    assert repeated.place.read(f"c/t/{listing.LATEST}").decode().strip() == kept[1].id


def test_a_copy_outlives_what_it_was_copied_from(repeated: Repeated) -> None:
    """Retention removes the older one, once the new one is in the catalog."""
    repeated.settings = replace(repeated.settings, snapshot_retention_count=1)
    repeated.take(1000)
    for turn in range(2, 5):
        assert repeated.copy(turn * 1000) == 1
        assert repeated.ids() == [repeated.folder.rpartition("/")[2]]
    assert repeated.take(5000) == 0


def test_a_copy_leaves_out_as_many_tombstones_as_there_are(repeated: Repeated) -> None:
    """A clean may have dropped some since the newest snapshot, which never had them."""
    repeated.take(1000)
    log = repeated.connector.log()
    assert log.base is not None
    assert manifest.read(repeated.place, repeated.folder).tombstones_excluded == 1
    repeated.connector.cleaner.clean(repeated.settings.policy.delete_retention_ms + 1)
    assert repeated.connector.log().base != log.base
    assert repeated.copy(2000) == 1
    assert manifest.read(repeated.place, repeated.folder).tombstones_excluded == 0


def test_damage_is_not_copied(repeated: Repeated) -> None:
    """A file of the newest snapshot has other bytes, as many as before: the new one is written of the base runs."""
    repeated.take(1000)
    first, data = repeated.folder, repeated.data(repeated.folder)
    path = f"{first}/{repeated.first_file}"
    whole = repeated.place.read(path)
    repeated.place.write(path, whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with capture_logs() as logs:
        assert repeated.take(2000, again=True) == 1
    assert repeated.data(repeated.folder) != repeated.data(first)
    assert sorted(repeated.data(repeated.folder).values()) == sorted(data.values())
    assert any("is damaged" in str(line.get("error")) for line in logs)


@pytest.fixture
def in_store(repeated: Repeated) -> None:
    """Has the snapshot location taken for an object store, whose requests may be carried out late."""
    repeated.shelf.is_a_folder = False


@pytest.mark.usefixtures("in_store")
def test_a_copy_that_comes_to_be_late_is_removed(repeated: Repeated) -> None:
    """Its answer was lost, and its folder cleared by then; by the mark there the next snapshot knows whose it is."""
    repeated.settings = replace(repeated.settings, snapshot_retention_count=1)
    repeated.take(1000)
    repeated.place.before("copy", lose_answer)
    assert repeated.take(2000, again=True) == 1
    (failed,) = set(repeated.ids()) - {repeated.folder.rpartition("/")[2]}
    repeated.place.write(f"c/t/{failed}/data/part-0.parquet", b"late")
    assert repeated.take(3000, again=True) == 1
    assert repeated.ids() == [repeated.folder.rpartition("/")[2]]


@pytest.mark.usefixtures("in_store")
def test_a_copy_that_is_answered_and_not_made_is_written_anew(repeated: Repeated) -> None:
    """A server that overlooks what to copy from makes an empty object; its manifest would name what is not there."""
    repeated.take(1000)
    data = repeated.data(repeated.folder)
    repeated.shelf.empties = True
    with capture_logs() as logs:
        assert repeated.take(2000, again=True) == 1
    assert repeated.data(repeated.folder) == data
    assert any("has 0 bytes in place of" in str(line.get("error")) for line in logs)


def test_a_folder_of_nobody_does_not_end_retention(repeated: Repeated, tmp_path: Path) -> None:
    """One without mark and manifest is left by a kill as it was made, or by a person: it stays, others still go."""
    repeated.settings = replace(repeated.settings, snapshot_retention_count=1)
    repeated.take(1000)
    nobody = "20200101T000000Z-abcdef"
    (tmp_path / "snapshots" / "c" / "t" / nobody).mkdir()
    for turn in range(2, 5):
        assert repeated.take(turn * 1000, again=True) == 1
    assert set(repeated.ids()) == {nobody, repeated.folder.rpartition("/")[2]}


@pytest.mark.parametrize(
    "broken", [(b'"topic": "t"', b'"topic": "\xff"'), (b'"resume_safe_until": "1', b'"resume_safe_until": "x')]
)
def test_a_damaged_manifest_holds_up_nothing(repeated: Repeated, broken: tuple[bytes, bytes]) -> None:
    """Bytes that are no text, a time that is none: another snapshot is taken, and is then the newest."""
    repeated.take(1000)
    path = f"{repeated.folder}/{manifest.NAME}"
    damaged = repeated.place.read(path).replace(*broken)
    assert damaged != repeated.place.read(path)
    repeated.place.write(path, damaged)
    assert repeated.take(2000) == 1
    assert manifest.read(repeated.place, repeated.folder).records == 2


@pytest.mark.parametrize("lost", ["the file", "the whole snapshot", "the answer"])
def test_what_cannot_be_copied_is_written_anew(repeated: Repeated, lost: str) -> None:
    """Under another id, as a copy may still come to be; nothing of that one is left, and the data are the same."""
    repeated.take(1000)
    first, data, name = repeated.folder, repeated.data(repeated.folder), repeated.first_file

    def vanish() -> None:
        match lost:
            case "the file":
                repeated.lose(name)
            case "the whole snapshot":
                listing.delete(repeated.place, first)
            case _:
                lose_answer()

    repeated.place.before("copy", vanish)
    with capture_logs() as logs:
        assert repeated.take(2000, again=True) == 1
    (why,) = [one["error"] for one in logs if one["event"] == "snapshot cannot be copied, it is written anew"]
    assert ("answer" in why) == (lost == "the answer")
    assert repeated.data(repeated.folder) == data
    names = {one.path.rpartition("/")[2] for one in repeated.connector.catalog.state.snapshots}
    assert set(repeated.ids()) == names - ({first.rpartition("/")[2]} if lost == "the whole snapshot" else set())


def test_a_store_that_does_not_copy_is_not_asked(repeated: Repeated) -> None:
    """Each snapshot is written then; no copy is tried, and nothing is said of it."""
    repeated.shelf.copies = False
    repeated.take(1000)
    with capture_logs() as logs:
        assert repeated.take(2000, again=True) == 1
    assert [one["event"] for one in logs] == ["snapshot taken"]


class Killed(BaseException):
    """Ends a process where it stands."""


def kill() -> None:
    raise Killed


@pytest.mark.parametrize(("call", "path"), [("copy", ""), ("write", manifest.NAME)], ids=["in it", "before manifest"])
def test_a_copy_that_was_killed_is_found_by_no_reader(repeated: Repeated, call: str, path: str) -> None:
    """It has no manifest, LATEST and the catalog name the older one; the next snapshot removes what is left."""
    repeated.take(1000)
    first = repeated.folder
    repeated.place.before(call, kill, path)
    with pytest.raises(Killed):
        repeated.copy(2000)
    (left,) = (one for one in repeated.ids() if not first.endswith(one))
    assert manifest.path_of(repeated.place, f"c/t/{left}") is None
    assert repeated.folder == first
    assert first.endswith(repeated.place.read(f"c/t/{listing.LATEST}").decode().strip())
    repeated.connector.restart()
    assert repeated.copy(3000) == 1
    assert left not in repeated.ids()
    assert len(repeated.ids()) == 2


def test_a_stop_ends_a_copy(repeated: Repeated) -> None:
    """Between two files, and before another topic; what it has begun has no manifest."""
    repeated.take(1000)
    repeated.place.before("copy", repeated.connector.stopping.set)
    with pytest.raises(StoppedError):
        repeated.copy(2000)
    assert len(repeated.connector.catalog.state.snapshots) == 1
    with pytest.raises(StoppedError):
        repeated.copy(2000)
    (left,) = (one for one in repeated.ids() if not repeated.folder.endswith(one))
    assert manifest.path_of(repeated.place, f"c/t/{left}") is None
