"""`keyfold delete`: what of a connector it finds, what it removes, and in which order."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.errors import CatalogError, FencedError, HiddenCatalogError, SnapshotError, StorageError
from compactor.model.actions import AddPartition, AddSnapshot, AddTopic, Append, PlanFold, Publish
from compactor.model.log import OutputPoint, Run
from compactor.model.position import Position, encode
from compactor.model.record import TopicPartition
from compactor.snapshot import location, manifest
from compactor.storage.local import LocalStorage
from connectors.config.connector import ConnectorConfig
from connectors.errors import ConnectorError, UnreachableError
from connectors.kafka.admin import TopicInfo
from connectors.kafka.groups import CommittedOffset
from connectors.operations import delete as deletion
from connectors.operations import deletion_preview
from connectors.operations.deleted_tables import DeletedTables
from connectors.operations.deletion_preview import FOLDERS, DeletionPreview, OutputTopic
from connectors.runtime.takeover import DELETING, refuse_begun
from tests.support.memory.storage import FailingStorage, MemoryStorage
from tests.support.tables import Tables
from tests.support.tables import row as table_row
from tests.unit.compactor.snapshot.test_manifest import FULL

OUT = "t.compacted"
SNAPSHOT = "c/t/20261121T000000Z-a1"
THEIRS = "c/t/20261121T000000Z-theirs"
CONFIG = ConnectorConfig.model_validate(
    {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", "snapshot.location": "s"}
)


TABLE = {"value.converter": "keyfold.String"}


class Brokers:
    """An Admin with topics and one group, which refuses the request that is named in `refuses`, once."""

    def __init__(self, **held: CommittedOffset) -> None:
        self.topics = {
            "t": TopicInfo("t", "id-t", 1),
            OUT: TopicInfo(OUT, "id-o", 1),
            "dead": TopicInfo("dead", "d", 1),
        }
        self.group: dict[TopicPartition, CommittedOffset] | None = {
            TopicPartition(name, 0): one for name, one in held.items()
        }
        self.refuses = ""
        self.deleted: list[str] = []
        self.asked: list[str] = []
        self.groups: set[str] = set()

    def list_topics(self) -> list[str]:
        return sorted(self.topics)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def committed(
        self, group: str, partitions: Sequence[TopicPartition], **_: object
    ) -> Mapping[TopicPartition, CommittedOffset | None]:
        assert group == "connect-c"
        return {tp: (self.group or {}).get(tp) for tp in partitions}

    def has_group(self, group: str) -> bool:
        self.asked.append(group)
        return group in self.groups if group.startswith("keyfold-dlq-") else self.group is not None

    def delete_topics(self, names: Sequence[str]) -> None:
        self._may("delete_topics")
        self.topics = {name: info for name, info in self.topics.items() if name not in names}

    def delete_group(self, group: str) -> None:
        self._may("delete_group")
        self.deleted.append(group)
        if group in self.groups:
            self.groups.remove(group)
        else:
            self.group = None

    def _may(self, what: str) -> None:
        if what == self.refuses:
            self.refuses = ""
            raise UnreachableError("away")


def position(catalog_id: str, output_id: str = "id-o") -> CommittedOffset:
    """A position that a connector's publish has committed."""
    return 7, encode(Position(offset=7, catalog_id=catalog_id, output_id=output_id))


class World:
    """Connector c, which has published topic t up to 7 and taken a snapshot of it."""

    def __init__(self, folder: Path) -> None:
        self.config = CONFIG
        self.storage = MemoryStorage()
        self.shelf = LocalStorage(str(folder))
        catalog = Catalog.open(self.storage, "c")
        catalog.take_over("a:1", 1)
        catalog.commit(
            lambda _: (
                AddTopic(topic="t", topic_id="id-t", output=OUT, output_id="id-o"),
                AddPartition(topic="t", partition=0, bucket=0, start=0),
            ),
            1,
        )
        self.catalog = catalog
        self.brokers = Brokers(t=position(catalog.state.catalog_id))
        self.storage.write("runs/1/a.parquet", b"run")
        self.storage.write("status.json", b"{}")

    def published(self) -> World:
        run = Run(start=0, end=7, level=0, files=(), records=7, bytes=70, tombstones=0, rejected=0)
        tp: dict[str, Any] = {"topic": "t", "partition": 0}
        taken = AddSnapshot(
            topic="t", id=SNAPSHOT[4:], path=SNAPSHOT, created_ms=1, source_offsets={}, records=7, bytes=70
        )
        self.catalog.commit(lambda _: [Append(**tp, start=0, end=7, run=run)], 1)
        self.catalog.commit(lambda _: [PlanFold(**tp, end=7), Publish(**tp, end=7, output=OutputPoint(7, 9)), taken], 1)
        for name in (SNAPSHOT, THEIRS):
            self.shelf.write(f"{name}/data/1.parquet", b"rows")
            self.shelf.write(f"{name}/manifest.json", b"{}")
        self.shelf.write("c/t/LATEST", SNAPSHOT[4:].encode() + b"\n")
        return self

    def found(self, *, outputs: bool = True, storage: Any = None) -> DeletionPreview:
        admin: Any = self.brokers
        return deletion_preview.preview_of(
            storage or self.storage, self.config, admin, self.shelf, with_outputs=outputs
        )

    def delete(self, *, outputs: bool = True, storage: Any = None) -> None:
        """What the command does once it was told to go on."""
        used = storage or self.storage
        found = self.found(outputs=outputs, storage=used)
        admin: Any = self.brokers
        catalog = deletion.fence(used, "c", "me:2", 2)
        deletion.begin(used, found.plan, catalog)
        deletion.carry_out(used, found.plan, self.config, admin, self.shelf)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).published()


def test_all_of_a_connector_goes_and_nothing_else(world: World) -> None:
    """Its folder, group, output and the snapshots that its catalog names; nobody else's snapshot, topic or file."""
    world.storage.write("notes.txt", b"mine")
    world.delete()
    assert [info.path for info in world.storage.walk("")] == ["notes.txt"]
    assert sorted(world.brokers.topics) == ["dead", "t"]
    assert world.brokers.group is None
    assert world.shelf.list("c/t") == ["20261121T000000Z-theirs"]
    world.storage.delete("notes.txt")
    world.brokers.group = None
    assert world.found().nothing


@pytest.mark.parametrize("kept", ["redrive.json", "redrive/0000000007.json", None])
def test_the_group_of_letters_goes_where_any_were_sent_back(world: World, kept: str | None) -> None:
    """With the file that stands in for it; elsewhere there is none, and no right on it is asked for."""
    if kept is not None:
        world.storage.write(kept, b"{}")
    world.delete()
    assert world.brokers.deleted == ["connect-c", *["keyfold-dlq-c"] * (kept is not None)]
    assert world.storage.walk("") == []


@pytest.mark.parametrize(("there", "dead"), [(True, True), (False, True), (True, False)])
def test_the_group_of_letters_goes_with_a_lost_storage(world: World, there: bool, dead: bool) -> None:
    """Where there is one, and the connector has letters; nothing else need be there of it."""
    if dead:
        more = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
        config = ConnectorConfig.model_validate({**CONFIG.given, **more})
        world.config = config
    world.storage = MemoryStorage()
    world.brokers.group = None
    world.brokers.groups = {"keyfold-dlq-c"} if there else set()
    assert world.found(outputs=False).nothing == (not (there and dead))
    world.delete(outputs=False)
    assert ("keyfold-dlq-c" in world.brokers.deleted) == (there and dead)


def test_the_group_of_letters_is_not_asked_for_beside_a_catalog(world: World) -> None:
    """The principal may have no right on it."""
    more = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    world.config = ConnectorConfig.model_validate({**CONFIG.given, **more})
    world.delete()
    assert set(world.brokers.asked) == {"connect-c"}


def test_outputs_stay_unless_they_are_asked_for(world: World) -> None:
    """Without --outputs the output and the snapshots are left, and named."""
    assert world.found(outputs=False).plan.outputs == (OutputTopic(OUT, "id-o"),)
    world.delete(outputs=False)
    assert OUT in world.brokers.topics
    assert SNAPSHOT[4:] in world.shelf.list("c/t")
    assert (world.brokers.group, world.storage.walk("")) == (None, [])


@pytest.mark.parametrize("refused", ["delete_topics", "delete_group", "catalog", "runs", "status.json", DELETING])
def test_a_delete_that_was_broken_off_is_finished_by_the_next(world: World, refused: str) -> None:
    """Ended before any of its steps it leaves what no worker takes over; the next one removes all that is left.

    Also the outputs, though the next does not ask for them and the catalog may be gone by then.
    """
    storage = FailingStorage(world.storage)
    world.brokers.refuses = refused

    def fail() -> None:
        raise StorageError("away")

    method = "delete_folder" if refused in FOLDERS else "delete"
    storage.before(method, fail, refused)
    with pytest.raises((UnreachableError, StorageError)):
        world.delete(storage=storage)
    with pytest.raises(ConnectorError, match="is being deleted"):
        refuse_begun(world.storage, "c")
    assert world.found(outputs=False).begun
    world.delete(outputs=False)
    assert world.storage.walk("") == []
    assert sorted(world.brokers.topics) == ["dead", "t"]
    assert world.shelf.list("c/t") == ["20261121T000000Z-theirs"]


def test_a_group_that_somebody_is_in_keeps_the_outputs(world: World) -> None:
    """A Kafka Connect sink of the same name has the same group: that is found before anything else goes."""
    world.brokers.refuses = "delete_group"
    with pytest.raises(UnreachableError):
        world.delete()
    assert (OUT in world.brokers.topics, world.shelf.exists("c/t/LATEST")) == (True, True)
    world.delete()
    assert OUT not in world.brokers.topics


def test_a_worker_that_takes_over_before_it_begins_stops_it(world: World) -> None:
    """Either the worker finds that a delete has begun, or the delete finds the worker's epoch: then nothing goes."""
    found = world.found()
    catalog = deletion.fence(world.storage, "c", "me:2", 2)
    Catalog.open(world.storage, "c").take_over("worker:3", 3)
    with pytest.raises(FencedError):
        deletion.begin(world.storage, found.plan, catalog)
    assert not world.storage.exists(DELETING)
    empty = MemoryStorage()
    begun = FailingStorage(empty)
    begun.before("write", lambda: Catalog.open(empty, "c").take_over("worker:3", 3), DELETING)
    with pytest.raises(FencedError):
        deletion.begin(begun, replace(found.plan, connector="c"), None)
    assert not empty.exists(DELETING)


def test_an_older_owner_commits_nothing_any_more(world: World) -> None:
    """The catalog is taken over before it is removed."""
    deletion.fence(world.storage, "c", "me:2", 2)
    with pytest.raises(FencedError):
        world.catalog.refresh()


def test_where_the_storage_is_lost_the_positions_say_what_was_ours(world: World) -> None:
    """They name the output that they were committed for; a topic that only has its name is left."""
    world.storage = MemoryStorage()
    found = world.found()
    assert (found.has_catalog, found.plan.outputs, len(found.held)) == (False, (OutputTopic(OUT, "id-o"),), 1)
    assert found.strangers == (world.catalog.state.catalog_id,)
    world.brokers.topics[OUT] = TopicInfo(OUT, "made anew", 1)
    assert (world.found().plan.outputs, world.found().others) == ((), (OUT,))
    world.delete()
    assert OUT in world.brokers.topics
    assert world.brokers.group is None


def test_a_worker_elsewhere_that_publishes_meanwhile_is_found(world: World) -> None:
    """Nothing fences it for good, as its catalog is not here: before anything is removed its position has moved."""
    world.storage = MemoryStorage()
    found, brokers = world.found(), cast("Any", world.brokers)
    assert found.strangers
    deletion.refuse_elsewhere(found, CONFIG, brokers)
    moved = Position(offset=8, catalog_id=world.catalog.state.catalog_id, output_id="id-o")
    brokers.group = {TopicPartition("t", 0): (8, encode(moved))}
    with pytest.raises(ConnectorError, match="runs elsewhere: the position of t-0 has just moved to 8"):
        deletion.refuse_elsewhere(found, CONFIG, brokers)
    with pytest.raises(ConnectorError, match="is there again"):
        deletion.refuse_begun_anew(found, CONFIG, brokers)
    brokers.group = None
    deletion.refuse_begun_anew(found, CONFIG, brokers)


def test_snapshots_that_say_whose_they_are_go_with_a_lost_storage(world: World) -> None:
    """By the catalog that they name, as the positions do; the folder is free for the next catalog then."""
    state = world.catalog.state
    lost = state.catalog_id
    for folder in ("c", "c/t/begun"):
        location.write_mark(world.shelf, folder, state, world.storage)
    world.storage = MemoryStorage()
    for path, catalog_id in ((f"{SNAPSHOT}/manifest.json", lost), (f"{THEIRS}/_manifest.json", "another")):
        world.shelf.write(path, manifest.encode(replace(FULL, catalog_id=catalog_id)))
    assert (world.found().plan.catalogs, world.found().plan.snapshots) == ((lost,), (SNAPSHOT, "c/t/begun"))
    world.delete()
    assert (world.shelf.list("c"), world.shelf.list("c/t")) == (["t"], ["20261121T000000Z-theirs"])


def _with_table(world: World, folder: Path, kind: str, **settings: str) -> Tables:
    """Gives the connector a table of one row, as its catalog has committed it."""
    tables = Tables(kind, folder, place=world.shelf, **settings)
    world.config = tables.config
    tables.commit([table_row(0, "a")], catalog_id=world.catalog.state.catalog_id)
    return tables


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_tables_go_as_snapshots_do(kind: str, is_lost: bool, tmp_path: Path) -> None:
    """With --outputs, of a lost storage too; without it they are named, and stay as they are."""
    world = World(tmp_path).published()
    tables = _with_table(world, tmp_path, kind)
    if is_lost:
        world.storage = MemoryStorage()
    assert world.found(outputs=False).plan.tables == ("t",)
    world.delete(outputs=False)
    assert tables.rows() == [table_row(0, "a")]
    world.brokers.group = {TopicPartition("t", 0): position(world.catalog.state.catalog_id)}
    world.delete()
    assert kind not in world.shelf.list("c/t")
    assert world.found().plan.tables == ()
    tables.commit([table_row(1, "b")], catalog_id="the next")
    assert tables.rows() == [table_row(1, "b")]


def test_tables_of_others_stay(tmp_path: Path) -> None:
    """Of another catalog, also if it has taken the place of one that was to go."""
    world = World(tmp_path).published()
    tables = _with_table(world, tmp_path, "delta")
    plan = world.found().plan
    DeletedTables(world.config, world.shelf, "").drop(plan.tables, plan.catalogs)
    tables.commit([table_row(1, "b")], catalog_id="another")
    assert world.found().plan.tables == ()
    DeletedTables(world.config, world.shelf, "").drop(plan.tables, plan.catalogs)
    assert tables.rows() == [table_row(1, "b")]


def test_a_table_goes_with_a_delete_that_was_broken_off(tmp_path: Path) -> None:
    """The plan names it, though its log, which names the catalog, may be gone by then."""
    world = World(tmp_path)
    _with_table(world, tmp_path, "delta")
    deletion.begin(world.storage, world.found().plan, deletion.fence(world.storage, "c", "me:2", 2))
    shutil.rmtree(tmp_path / "c" / "t" / "delta" / "_delta_log")
    world.delete(outputs=False)
    assert not (tmp_path / "c" / "t" / "delta").exists()


def test_no_catalog_of_tables_is_made_to_look_for_some(world: World, tmp_path: Path) -> None:
    """SQLite would make the file."""
    world.config = ConnectorConfig.model_validate({**CONFIG.given, **TABLE, "snapshot.table": "iceberg"})
    assert world.found().plan.tables == ()
    world.delete()
    assert not (tmp_path / "iceberg.db").exists()


@pytest.mark.parametrize("outputs", [False, True])
def test_tables_that_cannot_be_looked_at_hold_up_no_delete_without_outputs(world: World, outputs: bool) -> None:
    """It says so; with --outputs nothing is removed before."""
    away = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://127.0.0.1:9"}
    world.config = ConnectorConfig.model_validate({**CONFIG.given, **TABLE, "snapshot.table": "iceberg", **away})
    if outputs:
        with pytest.raises(SnapshotError, match="the table of topic t cannot be looked at"):
            world.found(outputs=outputs)
    else:
        assert "cannot be looked at" in (world.found(outputs=outputs).tables_fault or "")


def test_an_output_that_the_connector_never_published_to_is_not_its_own(tmp_path: Path) -> None:
    """A connector that FAILED because the output is another's does not take it along."""
    world = World(tmp_path)
    world.brokers.group = None
    assert (world.found().plan.outputs, world.found().others) == ((), (OUT,))


def test_an_output_in_which_a_publish_found_another_connector_is_not_its_own(tmp_path: Path) -> None:
    """The catalog learns of a fold before step 7 looks at the output: nothing was sent of it, and no position kept."""
    world = World(tmp_path)
    world.brokers.group = None
    tp: dict[str, Any] = {"topic": "t", "partition": 0}
    run = Run(start=0, end=7, level=0, files=(), records=7, bytes=70, tombstones=0, rejected=0)
    world.catalog.commit(lambda _: [Append(**tp, start=0, end=7, run=run), PlanFold(**tp, end=7)], 1)
    assert (world.found().plan.outputs, world.found().others) == ((), (OUT,))
    world.delete()
    assert OUT in world.brokers.topics


def test_a_catalog_that_cannot_be_read_is_no_hindrance(world: World) -> None:
    """It is said, and goes like the rest; one of another connector is left alone."""
    for info in world.storage.walk("catalog"):
        world.storage.write(info.path, b"{")
    assert "damaged" in (world.found().damage or "")
    world.delete()
    assert (world.storage.walk(""), OUT in world.brokers.topics) == ([], False)
    other = MemoryStorage()
    Catalog.open(other, "d").take_over("a:1", 1)
    with pytest.raises(CatalogError, match="connector d's"):
        world.found(storage=other)


def test_a_worker_that_slept_through_it_commits_nothing(world: World) -> None:
    """Its next commit finds nothing of the catalog; what that leaves goes with the next delete."""
    world.delete()
    with pytest.raises(HiddenCatalogError, match="nothing of it is there"):
        world.catalog.commit(lambda _: [PlanFold(topic="t", partition=0, end=7)], 3)
    world.delete()
    assert world.storage.walk("") == []
