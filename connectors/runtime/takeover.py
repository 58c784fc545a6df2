"""Takes a connector over: steps T1 to T3 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Final, NamedTuple

import structlog
from msgspec import UNSET

from compactor.catalog import owner_lock, owner_starts
from compactor.catalog.catalog import Catalog
from compactor.catalog.hidden import was_made_beside
from compactor.catalog.owner_starts import Start
from compactor.errors import CatalogError, FencedError, KeyfoldError, ReplacedCatalogError, StorageError
from compactor.failpoints import hit
from compactor.model.actions import ReopenTopic, SetBuckets
from compactor.model.position import WinnerRules
from compactor.model.record import TopicPartition
from compactor.model.state import BY_BYTES, BYTES, NO_FILL, CatalogState
from compactor.publish.resume import no_catalog
from compactor.rebuild.plan import check_rules
from compactor.storage.base import Storage
from compactor.storage.limits import LEASE_MS
from connectors.clock import SYSTEM_CLOCK
from connectors.config.connector import ConnectorConfig
from connectors.config.selection import select
from connectors.config.stores import worker_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, ConnectorError
from connectors.kafka.access import KafkaAccess
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.retry import poll_until
from connectors.match_time import START_S, matches_within
from connectors.runtime.kafka_broker import KafkaBroker
from connectors.runtime.specs.connector_store import FOLDER
from connectors.sinks.producer_session import read_positions

_log = structlog.get_logger()

DELETING: Final = "deleting.json"
"""The file in a connector's storage that says what `keyfold delete` is removing (`operations/delete.py`)."""

CHECKPOINT: Final = "checkpoint"
"""A folder that earlier versions of keyfold have made in a connector's storage, and nothing reads."""

LOCK_POLL_S: Final = 1.0
"""How often a lock that may be a killed worker's is looked at."""

LEASE_MARGIN_S: Final = 5.0
"""How much longer it is looked at than it can stand: a store's times are in whole seconds."""

LIST_PAUSE_MS: Final = 4_000
"""The pause between two listings of a folder: a network file system may show an old listing for half a minute."""


class Ownership(NamedTuple):
    """Catalog and brokers of a connector that this process owns until another process takes it over."""

    catalog: Catalog
    broker: KafkaBroker


class OwnerClaim:
    """Claims `owner.lock` for one run of a connector; `held` says whether this process has it.

    The lock only informs others: a StorageError is logged, the take-over raises its own. Who runs the connector gives
    the lock back, as it may be held for longer than this run.
    """

    def __init__(self, storage: Storage, lock: owner_lock.OwnerLock) -> None:
        self.held = False
        self.start = 0
        """This process's place among all starts, as the lock names it; set by the task before it claims."""
        self._storage = storage
        self._lock = lock

    def claim(self, epoch: int) -> None:
        """Takes the lock, which a command or a frozen owner may have held, and writes this process into it."""
        try:
            self.held = self._lock.claim(owner_lock.this_process(epoch, self.start))
        except StorageError as error:
            _log.warning("owner.lock could not be taken", error=str(error))

    def warn_of_another(self) -> None:
        """Logs the worker, if there is one, from which this process is about to take over."""
        other = None if self.held else owner_lock.live_owner(self._storage)
        if other is not None:
            _log.warning(
                "taking over from a worker that lives: it lets this connector go, and ends with 5 if it has no other",
                owner=str(other),
            )


class Fenced(NamedTuple):
    """What is there between T2 and T3: a catalog that is ours, and no one else publishes."""

    catalog: Catalog
    broker: KafkaBroker
    admin: Admin
    connector: ConnectorConfig
    clients: ClientSettings


def abandoned_s(storage: Storage) -> float:
    """Returns for how many seconds a lock may stand after its holder was killed: in a folder it ends with it."""
    return 0.0 if storage.is_folder else LEASE_MS / 1000 + LEASE_MARGIN_S


def draw_start(worker: WorkerConfig) -> Start:
    """Draws a number in the order of starts on the worker's storage.location.

    A storage that gives none is no reason to run nothing: the start then has no place, and that is logged.
    """
    storage = worker_storage(worker).sub(FOLDER)
    try:
        return owner_starts.draw(storage)
    except StorageError as error:
        _log.warning(
            "the order of starts is not known: another worker that starts meanwhile may share the connectors",
            error=str(error),
        )
        return Start(storage, 0)


class StartPlace:
    """The place of this process among all starts on its storage.location.

    `start` is None until the storage has given one. A storage that gave none is asked again by the next `draw`, as it
    may only have been away.
    """

    def __init__(self, worker: WorkerConfig) -> None:
        self.start: Start | None = None
        self._worker = worker

    @property
    def number(self) -> int:
        """The place, 0 if there is none."""
        return 0 if self.start is None else self.start.number

    def draw(self) -> Start:
        """Returns the start that was drawn before, or draws one, which may have no place. Raises nothing."""
        if self.start is not None:
            return self.start
        start = draw_start(self._worker)
        self.start = start if start.is_ordered else None
        return start


@contextmanager
def claimed(storage: Storage, connector: str, wait_s: float = 0.0, *, poll_s: float = LOCK_POLL_S) -> Iterator[None]:
    """Holds the lock of `connector`, which has the folder `storage`, so that no worker takes it up.

    Waits up to `wait_s` seconds for it (`abandoned_s`), and looks every `poll_s`. Raises ConflictError.
    """
    lock = owner_lock.OwnerLock(storage)
    if not poll_until(bool, lambda: lock.claim(owner_lock.this_process()), wait_s, poll_s):
        raise ConflictError(
            f"Connector {connector} is run by another worker: {owner_lock.live_owner(storage) or 'unknown'}.",
            "Stop it there, then ask again.",
        )
    try:
        yield
    finally:
        lock.release()


def take_over(
    storage: Storage,
    connector: ConnectorConfig,
    clients: ClientSettings,
    tasks_max: int,
    now_ms: int,
    known: str | None = None,
    change: Callable[[Fenced], object] | None = None,
    *,
    start: Start,
    changes_rules: bool = False,
    rebuilds: bool = False,
    kafka: KafkaAccess | None = None,
    others: Callable[[], Iterable[ConnectorConfig]] = tuple,
) -> Ownership:
    """Takes `connector` over, which has the folder `storage`, and adds its topics as they are now.

    If `known` is the id of the catalog that was there before, no other catalog is taken or made: its disk may not be
    mounted. `others` gives the worker's connectors, with which this one must make no loop. `change` is called once no
    other process publishes any more (steps G and R); with `changes_rules` it gives the catalog the rules of
    `connector`, if they are others; CatalogError is raised if it does not. `rebuilds`: no catalog is there, and one has
    committed positions. Raises NoCatalogError otherwise, if that is so; FencedError if another process took over at the
    same time, or one that started after `start`; OutputError, SourceChangedError and DataLossError if topics are not
    what the catalog knows; SourceMissingError, UnreachableError, StorageError, CatalogError, and what `change` raises.
    """
    kafka = kafka or KafkaAccess()
    kafka.probe(connector.name, clients)  # no owner is fenced while its brokers do not answer
    refuse_begun(storage, connector.name)
    catalog = Catalog.open(storage, connector.name)
    _refuse_other(catalog, storage, known)
    if not catalog.version:
        _refuse_lost(storage, connector, kafka.admin(clients.admin()), rebuilds=rebuilds)
    state, identity = catalog.state, BYTES if connector.key_identity == BY_BYTES else connector.key_identity
    asked = connector.order, identity, connector.scope, UNSET if connector.fill == NO_FILL else connector.fill
    has_own = changes_rules and catalog.version > 0
    catalog.require(*((state.order, state.identity, state.scope, state.fill) if has_own else asked))
    owner = owner_lock.this_process(start=start.number).text
    pause = partial(SYSTEM_CLOCK.sleep_ms, LIST_PAUSE_MS)
    catalog.take_over(owner, now_ms, pause, lambda other: start.is_before(owner_lock.parse(other)))
    hit("takeover.epoch")
    refuse_begun(storage, connector.name)  # `delete` looks for our epoch after it has written that file
    _fence(catalog, kafka, connector, clients, tasks_max, now_ms)
    admin = kafka.admin(clients.admin())
    broker = KafkaBroker(connector, clients, admin, storage, others=others)
    try:
        if change is not None:
            change(Fenced(catalog, broker, admin, connector, clients))
            catalog.require(*asked)  # a change that was refused has left the rules as they were
        catalog.commit(reopened, now_ms)
        topics = broker.discover(catalog.state)
        hit("takeover.topics")
        catalog.commit(lambda _: topics, now_ms)
        closed = broker.look_into(catalog.state)
        catalog.commit(lambda _: closed, now_ms)
    except BaseException:
        broker.close()
        raise
    _log.info("taken over", epoch=catalog.epoch, topics=sorted(catalog.state.topics))
    return Ownership(catalog, broker)


def reopened(state: CatalogState) -> list[ReopenTopic]:
    """Returns the actions that read those topics on which an earlier run has set aside for a bad record.

    It may be corrected or allowed by now; if not, the topic is set aside again.
    """
    return [ReopenTopic(topic=name) for name, topic in state.topics.items() if topic.is_rejected]


def refuse_begun(storage: Storage, connector: str) -> None:
    """Raises ConnectorError if `keyfold delete` has begun to remove the connector, and has not finished."""
    if storage.exists(DELETING):
        raise ConnectorError(
            f"Connector {connector} is being deleted: {storage.location}/{DELETING} is there.",
            "Finish it with keyfold delete CONNECTOR.json; after that the connector can begin anew.",
        )


def newer_owner(catalog: Catalog | None) -> FencedError | None:
    """Returns the error of a connector that another process has taken over since it ran on `catalog`, or None.

    None as well if the newer epoch is this process's own: its take-over was committed, but the answer was lost, or the
    run failed after it. If the folder was restored before that, `catalog` does not know of the take-over.
    """
    if catalog is None:
        return None
    try:
        try:
            catalog.refresh()
        except ReplacedCatalogError as error:
            now = Catalog.open(catalog.storage, catalog.state.connector).state
            is_same = now.catalog_id == catalog.state.catalog_id
            return None if is_same and _is_own(now) else error
        except FencedError as error:
            return None if _is_own(catalog.state) else error
    except (StorageError, CatalogError):  # the next run says so
        return None
    return None


def _is_own(state: CatalogState) -> bool:
    return owner_lock.parse(state.owner).process == owner_lock.PROCESS


def _refuse_other(catalog: Catalog, storage: Storage, known: str | None) -> None:
    connector = catalog.state.connector
    if known is None or (catalog.version and catalog.state.catalog_id == known):
        return
    if not catalog.version:
        raise StorageError(
            f"{storage.location} has no catalog, though this worker has worked on catalog {known} there.",
            "See whether the disk of storage.location is mounted, or restore the folder; nothing was written there. "
            "Where it is lost, stop the worker, make it anew from the output with keyfold rebuild CONNECTOR.json, and "
            "start the worker again.",
        )
    if was_made_beside(storage, known):
        return
    raise CatalogError(
        f"{storage.location} holds catalog {catalog.state.catalog_id} of connector {connector}; this worker has "
        f"worked on catalog {known} there.",
        "See whether the right disk is mounted at storage.location; to go on with this one, start the worker again.",
    )


@matches_within(START_S)
def _refuse_lost(storage: Storage, connector: ConnectorConfig, admin: Admin, *, rebuilds: bool) -> None:
    """Raises NoCatalogError if a catalog has committed positions of `connector`: its folder is no new one's.

    The store may list the folder as empty for a while; a catalog that was made then would begin from nothing. With
    `rebuilds` it is known to be lost. Then it raises RebuildError if the positions name other rules than `connector`,
    before a catalog is made that has these for good. Closes `admin`.
    """
    identity = None if connector.key_identity == BY_BYTES else connector.key_identity
    winners = WinnerRules(connector.order, connector.scope, connector.fill)
    with closing(admin):
        topics = admin.describe(select(connector, admin.list_topics()))
        every = [TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)]
        held = read_positions(admin, connector.group_id, every) if every else {}
        for tp, position in sorted(held.items()):
            if position is None or position.catalog_id is None:
                continue
            if rebuilds:
                check_rules(tp, position, connector.name, identity, winners)
            else:
                raise no_catalog(connector.name, storage.location, tp, position)


def _fence(
    catalog: Catalog,
    kafka: KafkaAccess,
    connector: ConnectorConfig,
    clients: ClientSettings,
    tasks_max: int,
    now_ms: int,
) -> None:
    """Fences the earlier owner's transactions (step T2); only then may partitions change buckets."""
    stored = catalog.state.buckets
    kafka.fence(clients.producer(), [connector.transactional_id(bucket) for bucket in range(max(tasks_max, stored))])
    hit("takeover.fence")
    if tasks_max != stored:
        catalog.commit(lambda _: [SetBuckets(count=tasks_max)], now_ms)


def ids_to_have(state: CatalogState | None, connector: ConnectorConfig) -> int:
    """Returns how many transactional ids a connector has, as its catalog says; of a new one, as its file does."""
    return (state.buckets if state is not None else 0) or connector.tasks_max or 1


def stored_state(storage: Storage, connector: str) -> CatalogState | None:
    """Returns the state of a connector's catalog without taking it over; None if there is none that can be read."""
    try:
        catalog = Catalog.open(storage, connector)
    except KeyfoldError:  # the run says so
        return None
    return catalog.state if catalog.version else None
