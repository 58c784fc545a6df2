"""Erases keys: steps E1 to E9 of docs/protocol.md in their order. A run that was cut off is gone on with."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog import owner_lock
from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.requests import Request
from compactor.failpoints import hit
from compactor.json_types import converted_as
from compactor.maintenance import Erased
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.snapshot import pins
from compactor.snapshot.partitions import without_values
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import kept_catalog
from connectors.config.stores import connector_storage, snapshot_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConflictError, UnreachableError
from connectors.kafka.client_settings import ClientSettings
from connectors.operations.erase import begin, signing
from connectors.operations.erase.begin import ErasurePlan
from connectors.operations.erase.deletions import deletions
from connectors.operations.erase.elsewhere import elsewhere
from connectors.operations.erase.key_matcher import KeyMatcher
from connectors.operations.erase.receipt import (
    BYTES,
    UNSEARCHED,
    VALUE,
    Receipt,
    SignedReceipt,
    Tombstone,
    begun_before,
    encoded,
    erased_keys,
    new_salt,
    path_of,
    state_of,
)
from connectors.operations.erase.search import LEVELS, RUN_LEVEL, SNAPSHOT_LEVEL, KeySearch, SearchPlaces, SearchResult
from connectors.operations.erase.source_records import SourceRecords
from connectors.operations.erase.tombstones import Deletion, ToDelete, send
from connectors.operations.get import identities_of
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import DEFAULT_TIMEOUT, POLL_MS, answered, request
from connectors.runtime.request_handler import ERASE

_TRIES: Final = 4
"""How often runs are cleaned if a value is left: in a file that other logs name, or that has what is not published."""
_FILES: Final = 2_000
"""Run files that one request names at most."""
_AGAIN_MS: Final = 2_000
"""Between two of them: by then a connector without a lag has published what it read."""

Here = Callable[[Request, OwnerLock], dict[str, Any]]


class EraseOptions(Struct, frozen=True, kw_only=True):
    """What is erased: of one `topic` or of all; `pinned`: also snapshots that are pinned."""

    topic: str | None = None
    pinned: bool = False


class Erasure(Struct, frozen=True):
    """A receipt, and the place in which it is kept."""

    location: str
    signed: SignedReceipt


class Eraser:
    """Erases `keys` from what `connector` keeps. `here` carries a request out if no worker runs the connector."""

    def __init__(
        self,
        worker: WorkerConfig,
        connector: ConnectorConfig,
        keys: Sequence[bytes],
        options: EraseOptions | None = None,
        timeout: RequestTimeout = DEFAULT_TIMEOUT,
        here: Here | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        begin.check_compacts(connector)
        self._worker = worker
        self._connector = connector
        self._keys = sorted(set(keys))  # a run that goes on numbers them as the one before
        self._options = options or EraseOptions()
        self._timeout = timeout
        self._here = here or self._taken_over
        self._clock = clock
        self._storage = connector_storage(worker, connector.name)
        self._place = snapshot_storage(worker, connector)

    def plan(self) -> ErasurePlan:
        """Looks up what is to be done, and does nothing.

        Raises UsageError, ConflictError, StorageError; what `deletions` raises.
        """
        return self._planned()[0]

    def _planned(self) -> tuple[ErasurePlan, tuple[Deletion, ...]]:
        """Returns what is to be done, and what is sent to the source for it."""
        state, values, tombstones = begin.kept_records(self._storage, self._connector, self._keys, self._options.topic)
        chain, source = self._connector.chain_spec(self._worker.given), SourceRecords(self._clients())
        sent = deletions(self._connector.name, chain, values, state.record_order, source)
        salt = new_salt()
        result = self._search(state, salt, tombstones, 0).snapshots()
        kept = {each.number for each in values} | {each.key for each in tombstones}
        absent = (each for each in result.of(SNAPSHOT_LEVEL, VALUE) if each.key not in kept)
        begin.check_forms(self._storage, self._connector, state, self._keys, absent, chain.written_key)
        topic = self._options.topic
        snapshots = begin.held_snapshots(result, self._place, self._connector.name)
        with_key = {each.topic for each in values} | {each.topic for each in tombstones} | self._topics_begun(state)
        tables = begin.held_tables(result, state.topics, with_key, self._place, self._connector.name)
        wanted = [each for each in snapshots if topic in (None, each.topic)]
        plan = ErasurePlan(
            values=tuple(values),
            events=sum(each.payload is not None for each in sent),
            tombstones=tuple(tombstones),
            snapshots=tuple(each for each in wanted if each.goes(with_key)),
            unsearched=tuple(each for each in wanted if not each.goes(with_key)),
            tables=tuple(each for each in tables if topic in (None, each)),
            absent=tuple(key for number, key in enumerate(self._keys) if number not in kept),
        )
        return plan, sent

    def run(self) -> Erasure:
        """Erases the keys and returns the receipt, which is kept in the connector's folder too.

        Raises ConfigError if the signing key cannot be used, ConflictError if a pinned snapshot has a key,
        NotAllowedError without the right to write to the source, UnreachableError if the tombstones are not published
        in time; what a clean raises. The same call goes on then.
        """
        signer = signing.private_key(signing.key_file(self._worker))
        plan, wanted = self._planned()  # E1
        if not self._options.pinned:
            begin.check_pins(self._connector, plan)
        state = self._state()
        receipt = self._begun(state, plan)
        self._write(SignedReceipt(receipt))
        hit("erase.begun")
        sent = send(self._clients().producer(), self._connector.name, wanted, self._clock.now_ms())  # E2
        tombstones = _united(receipt.tombstones, (*plan.tombstones, *sent))
        receipt = replace(receipt, tombstones=tombstones, absent=_absent(len(self._keys), tombstones))
        self._write(SignedReceipt(receipt))
        self._await_published(receipt)  # E3
        hit("erase.published")
        receipt, result = self._removed(receipt)  # E4 to E8
        hit("erase.searched")
        signed = signing.sign(self._ended(receipt, result), signer)  # E9
        self._write(signed)
        return Erasure(self._location(receipt), signed)

    def _topics_begun(self, state: CatalogState) -> set[str]:
        """Returns the topics of the tombstones of an earlier run: their logs may have none of these any more."""
        before = begun_before(self._storage, state.catalog_id, self._keys, self._compared(state))
        return set() if before is None else {each.topic for each in before.tombstones}

    def _begun(self, state: CatalogState, plan: ErasurePlan) -> Receipt:
        """Returns the receipt that an earlier run has begun for these keys, or a new one."""
        compared = self._compared(state)
        before = begun_before(self._storage, state.catalog_id, self._keys, compared)
        if before is not None:
            return replace(before, topics=tuple(sorted({*before.topics, *plan.topics})))
        now_ms, salt = self._clock.now_ms(), new_salt()
        return Receipt(
            id=f"{now_ms:014d}-{secrets.token_hex(4)}",
            connector=self._connector.name,
            catalog_id=state.catalog_id,
            storage=self._storage.location,
            snapshot_location=None if self._place is None else self._place.location,
            table=self._connector.snapshot_table,
            salt=salt.hex(),
            keys=erased_keys(salt, self._keys, compared),
            topics=plan.topics,
            began_ms=now_ms,
        )

    def _await_published(self, receipt: Receipt) -> None:
        """Waits until the live worker has published the tombstones; without one it returns at once.

        Raises UnreachableError after the timeout.
        """
        until_ms = self._clock.monotonic_ms() + round(self._timeout.seconds * 1000)
        while (waiting := _unpublished(self._state(), receipt.tombstones)) and owner_lock.is_alive(self._storage):
            if self._clock.monotonic_ms() >= until_ms:
                raise _late(self._connector.name, waiting)
            self._clock.sleep_ms(POLL_MS)

    def _removed(self, receipt: Receipt) -> tuple[Receipt, SearchResult]:
        """Takes steps E4 to E8, again if a value is left in a file that had more than was published."""
        since_ms = self._clock.now_ms()
        left: tuple[str, ...] = ()
        for number in range(_TRIES):
            if number > 1:
                self._clock.sleep_ms(_AGAIN_MS)
            receipt = self._asked(receipt, left)
            state = self._state()
            if waiting := _unpublished(state, receipt.tombstones):
                raise _late(self._connector.name, waiting)
            _, values, _ = begin.kept_records(self._storage, self._connector, self._keys, self._options.topic)
            _check_won(self._connector.name, values, receipt.tombstones)
            search = self._search(state, bytes.fromhex(receipt.salt), receipt.tombstones, since_ms, receipt)
            result = search.everywhere()
            receipt = replace(receipt, gone_ms=_gone(receipt.gone_ms, result, self._clock.now_ms()))
            self._write(SignedReceipt(receipt))
            inside = f"{self._storage.location}/"
            left = tuple(dict.fromkeys(each.file.removeprefix(inside) for each in result.of(RUN_LEVEL, VALUE)))
            if not left:
                break
        return receipt, result

    def _asked(self, receipt: Receipt, files: Sequence[str]) -> Receipt:
        """Has the connector's owner take steps E4 to E7; returns the receipt with what was done.

        The logs that name one of the run `files` are written again.
        """
        if not receipt.topics:
            return receipt
        search = self._search(self._state(), bytes.fromhex(receipt.salt), receipt.tombstones, 0, receipt)
        held = begin.held_snapshots(search.snapshots(), self._place, self._connector.name)
        with_key = {each.topic for each in receipt.tombstones}
        wanted = [each for each in held if each.topic in receipt.topics and each.goes(with_key)]
        if self._options.pinned and self._place is not None:
            for each in wanted:
                pins.unpin(self._place, f"{self._connector.name}/{each.topic}/{each.id}")
        ids = tuple(each.id for each in wanted)
        asked = replace(request(ERASE), topics=receipt.topics, snapshots=ids, files=tuple(files[:_FILES]))
        result = answered(self._storage, self._connector.name, asked, self._timeout, self._here)
        done = converted_as(result["erased"], Erased)
        removed = dict.fromkeys((*receipt.snapshots_removed, *done.snapshots))
        return replace(
            receipt,
            snapshots_removed=tuple(removed),
            run_files_removed=receipt.run_files_removed + done.run_files,
            held=done.held,
        )

    def _ended(self, receipt: Receipt, result: SearchResult) -> Receipt:
        now_ms = self._clock.now_ms()
        return replace(
            receipt,
            ended_ms=now_ms,
            state=state_of(result.findings, receipt.held),
            searched=result.searched,
            files=tuple(map(self._named, result.files)),
            findings=tuple(replace(each, file=self._named(each.file)) for each in result.findings),
            elsewhere=elsewhere(self._connector, self._clients(), self._state(), receipt.topics, now_ms),
        )

    def _named(self, file: str) -> str:
        """Returns the name of a file without the values of its partitions: a later erasure may be of these."""
        place = None if self._place is None else f"{self._place.location}/"
        if place is None or not file.startswith(place):
            return file
        return place + without_values(file.removeprefix(place))

    def _search(
        self,
        state: CatalogState,
        salt: bytes,
        tombstones: Sequence[Tombstone],
        since_ms: int,
        receipt: Receipt | None = None,
    ) -> KeySearch:
        erased = erased_keys(salt, self._keys, self._compared(state)) if receipt is None else receipt.keys
        places = SearchPlaces(self._connector.name, state.catalog_id, self._storage, self._place)
        matcher = KeyMatcher(salt, erased, self._keys, state.key_identity)
        return KeySearch(places, matcher, tombstones, since_ms)

    def _compared(self, state: CatalogState) -> Sequence[bytes] | None:
        """Returns what the connector compares each key by; None if by its bytes. Raises RegistryError."""
        return None if state.key_identity is None else identities_of(self._connector, state, self._keys)

    def _taken_over(self, wanted: Request, lock: OwnerLock) -> dict[str, Any]:
        from connectors.operations.erase.take_over import run_and_erase  # it loads Spark

        return run_and_erase(self._worker, self._connector, wanted, lock)

    def _clients(self) -> ClientSettings:
        return ClientSettings.of(self._worker, self._connector)

    def _state(self) -> CatalogState:
        return kept_catalog(self._storage, self._connector.name).state

    def _write(self, signed: SignedReceipt) -> None:
        self._storage.write(path_of(signed.receipt.id), encoded(signed))

    def _location(self, receipt: Receipt) -> str:
        return f"{self._storage.location}/{path_of(receipt.id)}"


def _united(before: Sequence[Tombstone], now: Sequence[Tombstone]) -> tuple[Tombstone, ...]:
    """Returns the tombstones of an earlier run and of this one, each once, as it was first noted."""
    by_place = {(each.key, each.topic, each.partition, each.offset): each for each in (*now, *before)}
    return tuple(sorted(by_place.values(), key=lambda each: (each.topic, each.partition, each.offset)))


def _absent(keys: int, tombstones: Sequence[Tombstone]) -> tuple[int, ...]:
    """Returns the numbers of the keys without a tombstone: no log had a value of them either."""
    return tuple(sorted(set(range(keys)) - {each.key for each in tombstones}))


def _unpublished(state: CatalogState, tombstones: Sequence[Tombstone]) -> list[Tombstone]:
    published = {log.tp: log.published for log in state.logs}
    return [each for each in tombstones if published.get(TopicPartition(each.topic, each.partition), 0) <= each.offset]


def _late(connector: str, waiting: Sequence[Tombstone]) -> UnreachableError:
    first = waiting[0]
    return UnreachableError(
        f"Connector {connector}: {len(waiting)} tombstones are not published yet, first of them "
        f"{first.topic}-{first.partition} at offset {first.offset}.",
        "Nothing is removed yet. min.compaction.lag.ms holds records back, and a connector that is paused or FAILED "
        "publishes none: see keyfold describe. Run the same command again later: it goes on.",
    )


def _check_won(connector: str, values: Sequence[ToDelete], tombstones: Sequence[Tombstone]) -> None:
    """Raises ConflictError if a value that was there before a tombstone is still the latest of its key."""
    ends = {(each.key, each.topic, each.partition): each.offset for each in tombstones}
    lost = [each for each in values if each.offset < ends.get((each.number, each.topic, each.partition), each.offset)]
    if lost:
        raise ConflictError(
            f"Connector {connector}: the value of a key at {lost[0].topic}-{lost[0].partition}, offset "
            f"{lost[0].offset}, has outlived its tombstone: it is later by compaction.order, or the worker has other "
            "transforms than the file that was given.",
            "Give the file that the worker runs. Or delete the key at the source, by a record that is later in that "
            "order, and run this command again.",
        )


def _gone(before: dict[str, int], result: SearchResult, now_ms: int) -> dict[str, int]:
    """Returns when each level was first seen without a value."""
    left = {finding.level for finding in result.findings if finding.what in (VALUE, BYTES, UNSEARCHED)}
    return {level: before.get(level, now_ms) for level in LEVELS if level not in left}
