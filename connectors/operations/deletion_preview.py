"""Finds what there is of a connector that is to be deleted; changes nothing.

Of a connector that has lost its storage only its committed positions are known: which catalog wrote them, and for which
output topic. A snapshot is a catalog's by its mark or its manifest, which name the catalog's id; one that names none
is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from compactor.catalog import commits, owner_lock, requests
from compactor.catalog.aside import LOST
from compactor.catalog.catalog import Catalog
from compactor.decode_errors import UNDECODABLE
from compactor.errors import CatalogError, ForeignContentError, MissingFileError, SnapshotError
from compactor.json_types import decoded_as
from compactor.model.position import Position, buckets_of
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs.paths import RUNS
from compactor.snapshot import location as snapshot_location
from compactor.snapshot import manifest
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES
from connectors.config.connector import ConnectorConfig
from connectors.config.selection import select
from connectors.kafka.admin import Admin, TopicInfo
from connectors.operations.deleted_tables import DeletedTables
from connectors.operations.redrive import floor
from connectors.runtime import status
from connectors.runtime.takeover import CHECKPOINT, DELETING
from connectors.sinks.producer_session import read_positions

# What keyfold makes in a connector's storage. Anything else there is not keyfold's, and is left.
FOLDERS: Final = (commits.FOLDER, LOST, RUNS, CHECKPOINT, requests.FOLDER, floor.FOLDER)
FILES: Final = (status.NAME, floor.EARLIER, snapshot_location.NOTE, owner_lock.NAME)
# The files that say which catalog a snapshot is of.
_SNAPSHOT_FILES: Final = (snapshot_location.MARK, *manifest.NAMES)


class OutputTopic(Struct, frozen=True, order=True):
    """An output topic by its name and id."""

    topic: str
    id: str


class DeletionPlan(Struct, frozen=True, kw_only=True):
    """What is removed: the content of deleting.json.

    `catalogs` are the ids of its catalog and of those that its positions were committed for; `outputs` the output
    topics that hold what it published, `snapshots` paths below snapshot.location, `tables` the topics with a table that
    it has committed to; `with_outputs`: whether these go.
    """

    format: int = 1
    connector: str
    catalogs: tuple[str, ...] = ()
    buckets: int = 0
    outputs: tuple[OutputTopic, ...] = ()
    snapshots: tuple[str, ...] = ()
    with_outputs: bool = False
    tables: tuple[str, ...] = ()


class DeletionPreview(NamedTuple):
    """A plan, and what else a person has to know before it is carried out.

    `files` and `bytes`: how much keyfold has in the connector's folder. `held`: the group's positions; `strangers`: ids
    of other catalogs that wrote some of them. `others`: topics with the name of an output that nothing shows to be this
    connector's. `damage`: why the catalog cannot be read. `begun`: an earlier delete was not finished. `folder`: the
    location of the connector's storage. `stored`: the files in which a worker keeps its config, as set over REST.
    `tables_fault`: why its tables cannot be looked at.
    """

    plan: DeletionPlan
    files: int
    bytes: int
    has_catalog: bool
    group: bool
    held: Mapping[TopicPartition, Position]
    strangers: tuple[str, ...]
    others: tuple[str, ...]
    damage: str | None
    begun: bool
    folder: str = ""
    stored: tuple[str, ...] = ()
    tables_fault: str | None = None

    @property
    def nothing(self) -> bool:
        """Whether there is nothing of the connector to remove."""
        outputs = self.plan.with_outputs and (self.plan.outputs or self.plan.snapshots or self.plan.tables)
        return not (self.files or self.group or outputs or self.begun or self.stored)


def preview_of(
    storage: Storage, connector: ConnectorConfig, admin: Admin, location: Storage | None, *, with_outputs: bool
) -> DeletionPreview:
    """Finds what there is of `connector`, which has the folder `storage`, and its snapshots in `location`.

    Changes nothing. Raises UnreachableError, NotAllowedError, StorageError; CatalogError if the folder is another
    connector's; SnapshotError if outputs are to go and its tables cannot be looked at.
    """
    begun = _begun(storage)
    before = begun or DeletionPlan(connector=connector.name)
    state, damage = kept_or_empty(storage, connector.name)
    sources = {*(connector.topics or select(connector, admin.list_topics())), *state.topics}
    held = held_positions(admin, connector, sources)
    outputs, others = _outputs(admin, connector, state, sources, held, before)
    writers = {position.catalog_id for position in held.values() if position.catalog_id}
    catalogs = {*writers, *filter(None, (state.catalog_id,)), *before.catalogs}
    snapshots = {*(snapshot.path for snapshot in state.snapshots), *before.snapshots}
    is_whole = with_outputs or before.with_outputs
    tables, tables_fault = _tables(
        DeletedTables(connector, location, storage.url("")), sources, catalogs, must=is_whole
    )
    plan = DeletionPlan(
        connector=connector.name,
        catalogs=tuple(sorted(catalogs)),
        buckets=max(state.buckets, before.buckets, buckets_of(held.values())),
        outputs=outputs,
        snapshots=tuple(sorted({*snapshots, *find_snapshots(location, connector.name, catalogs)})),
        with_outputs=is_whole,
        tables=tuple(sorted({*tables, *before.tables})),
    )
    # Unfinished files count too; deleting.json and the lock, which this process may hold, do not.
    ours = (info for info in (*storage.walk(""), *storage.unfinished("")) if info.path != owner_lock.NAME)
    files = [info for info in ours if info.path in FILES or info.path.partition("/")[0] in FOLDERS]
    return DeletionPreview(
        plan=plan,
        files=len(files),
        bytes=sum(info.bytes for info in files),
        has_catalog=bool(state.catalog_id),
        group=admin.has_group(connector.group_id) or was_redriven(storage, connector, admin),
        held=held,
        strangers=tuple(sorted(writers - {state.catalog_id, *before.catalogs})),
        others=others,
        damage=damage,
        begun=begun is not None,
        tables_fault=tables_fault,
    )


def _tables(
    tables: DeletedTables, topics: Iterable[str], catalogs: Collection[str], *, must: bool
) -> tuple[tuple[str, ...], str | None]:
    """Returns the topics with a table of `catalogs`, and why that cannot be said. With `must` raises SnapshotError."""
    try:
        return tables.owned(topics, catalogs), None
    except SnapshotError as error:
        if must:
            raise
        return (), error.message


def _begun(storage: Storage) -> DeletionPlan | None:
    """Reads the plan of an earlier delete; an empty one if its file cannot be read, None if there is none."""
    try:
        return decoded_as(storage.read(DELETING, LARGE_BYTES), DeletionPlan)
    except MissingFileError:
        return None
    except (*UNDECODABLE, ForeignContentError):
        return DeletionPlan(connector="")


def kept_or_empty(storage: Storage, connector: str) -> tuple[CatalogState, str | None]:
    """Returns the catalog's state, an empty one if there is none, and why it cannot be read.

    Raises CatalogError if it is another connector's.
    """
    catalog = Catalog(storage, connector)
    try:
        return catalog.refresh(), None
    except CatalogError as error:
        if catalog.version and catalog.state.connector != connector:
            raise
        return CatalogState(), error.message


def held_positions(admin: Admin, connector: ConnectorConfig, topics: Iterable[str]) -> dict[TopicPartition, Position]:
    """Reads the group's positions of the source topics that exist: a deleted topic has none."""
    there = admin.describe(topics)
    every = [TopicPartition(name, number) for name, info in there.items() for number in range(info.partitions)]
    positions = read_positions(admin, connector.group_id, every)
    return {tp: position for tp, position in positions.items() if position is not None}


def _outputs(
    admin: Admin,
    connector: ConnectorConfig,
    state: CatalogState,
    sources: Iterable[str],
    held: Mapping[TopicPartition, Position],
    before: DeletionPlan,
) -> tuple[tuple[OutputTopic, ...], tuple[str, ...]]:
    """Returns the connector's output topics that exist, and the names of topics that only have an output's name."""
    outputs = {
        topic: state.topics[topic].output if topic in state.topics else connector.output_topic(topic)
        for topic in sources
    }
    names = {topic: output for topic, output in outputs.items() if output is not None}
    # Those that positions were committed for, in one transaction with the records.
    written = {
        OutputTopic(names[tp.topic], position.output_id)
        for tp, position in held.items()
        if tp.topic in names and position.output_id is not None
    }
    known = {*_published(state), *written, *before.outputs}
    there = admin.describe({*names.values(), *(output.topic for output in known)})
    ours = {output for output in known if is_there(output, there)}
    return tuple(sorted(ours)), tuple(sorted(there.keys() - {output.topic for output in ours}))


def _published(state: CatalogState) -> Iterator[OutputTopic]:
    """Returns the outputs to which the catalog knows that records were sent.

    An output that it only names, or began a fold for (`PlanFold`, before step 7), may be another connector's, which is
    why this one never got further; what was sent of such a fold has its position.
    """
    sent = {log.topic for log in state.logs if log.published > log.start or log.output is not None}
    for topic in state.topics.values():
        if topic.topic in sent and topic.output is not None and topic.output_id is not None:
            yield OutputTopic(topic.output, topic.output_id)


def is_there(output: OutputTopic, there: Mapping[str, TopicInfo]) -> bool:
    """Returns whether `output` is among the topics that are `there`: a later topic of its name is another one."""
    return output.topic in there and there[output.topic].id == output.id


def find_snapshots(location: Storage | None, connector: str, catalogs: Collection[str]) -> tuple[str, ...]:
    """Lists the paths of the snapshots of `connector` that are of one of `catalogs`. Raises StorageError."""
    if location is None:
        return ()
    places = (info.path.rpartition("/") for info in location.walk(connector))
    # A snapshot is at <connector>/<topic>/<id>.
    folders = dict.fromkeys(folder for folder, _, name in places if name in _SNAPSHOT_FILES and folder.count("/") == 2)
    return tuple(path for path in folders if snapshot_location.catalog_of(location, path) in catalogs)


def was_redriven(storage: Storage, connector: ConnectorConfig, admin: Admin) -> bool:
    """Returns whether there is a group of redrives; the brokers are only asked if the storage may be lost.

    A storage with a catalog says it by what a redrive keeps: without that no right on the group is asked for.
    """
    if floor.is_kept(storage):
        return True
    lost = connector.dead_letter_topic is not None and not storage.list(commits.FOLDER)
    return lost and admin.has_group(connector.redrive_group_id)
