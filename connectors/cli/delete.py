"""`keyfold delete`: removes what keyfold keeps of a connector, after it has said what that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from connectors.cli.options import ConnectorArgument, WorkerOption, worker_of
from connectors.cli.output import say
from connectors.clock import SystemClock
from connectors.errors import UsageError

if TYPE_CHECKING:
    from compactor.storage.base import Storage
    from connectors.config.connector import ConnectorConfig
    from connectors.kafka.client_settings import ClientSettings
    from connectors.operations.delete import DeletionPreview
    from connectors.runtime.connector_store import ConnectorStore

OutputsOption = Annotated[
    bool, typer.Option("--outputs", help="Also remove the output topics that it published, and its snapshots.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def delete(
    connector: ConnectorArgument, outputs: OutputsOption = False, yes: YesOption = False, worker: WorkerOption = None
) -> None:
    """Removes a connector's storage folder, its consumer group, and its config if it was made over REST.

    It says what, and asks. Source topics are never touched.
    """
    config = worker_of(worker)
    from connectors.config.files import load_connector
    from connectors.config.stores import connector_storage, snapshot_storage
    from connectors.kafka.admin import Admin
    from connectors.kafka.client_settings import ClientSettings
    from connectors.kafka.probe import probe_all
    from connectors.operations.delete import preview
    from connectors.runtime.connector_store import ConnectorStore
    from connectors.runtime.takeover import PROBE_S

    settings = load_connector(connector, config).config
    storage = connector_storage(config, settings.name)
    _refuse_living(storage, settings.name)
    store = ConnectorStore.of(config)
    stored = store.files_of(settings.name)
    _refuse_worker_of(store, storage, settings.name, stored)
    clients = ClientSettings.of(config, settings)
    probe_all(settings.name, clients, PROBE_S)
    location = snapshot_storage(config, settings)
    found = preview(storage, settings, Admin(clients.admin()), location, with_outputs=outputs)
    if found.nothing and not stored:
        say(f"There is nothing to delete of connector {settings.name} in {storage.location} and on the brokers.")
        return
    say("\n".join(_lines(found, settings, storage.location, stored)))
    if not yes:
        _ask()
    with _claimed(store, settings.name, stored):
        _remove(storage, location, settings, clients, found, partial(store.delete, settings.name))
    say(f"Connector {settings.name} is deleted.")


def _refuse_living(storage: Storage, name: str) -> None:
    from compactor.catalog import owner_lock
    from connectors.kafka.retry import poll_until
    from connectors.runtime.takeover import LOCK_POLL_S, abandoned_s

    wait_s = abandoned_s(storage)  # a worker that was killed may still have its lock
    living = poll_until(lambda found: found is None, lambda: owner_lock.live_owner(storage), wait_s, LOCK_POLL_S)
    if living is not None:
        raise _is_run_error(name, str(living))


def _is_run_error(name: str, owner: str) -> UsageError:
    return UsageError(
        f"Connector {name} is run by {owner} now; nothing was removed.",
        "Stop that worker, or take the connector's file off it, then try again.",
    )


def _refuse_worker_of(store: ConnectorStore, storage: Storage, name: str, stored: Sequence[str]) -> None:
    """Raises UsageError if a worker lives that has what is stored of the connector, whatever state that is in.

    It would run the connector again, as it keeps the config in memory.
    """
    from connectors.kafka.retry import poll_until
    from connectors.runtime.takeover import LOCK_POLL_S, abandoned_s

    if not stored:
        return
    living = poll_until(lambda found: found is None, store.owner, abandoned_s(storage), LOCK_POLL_S)
    if living is not None:
        raise _is_kept_error(name, str(living), stored)


def _is_kept_error(name: str, owner: str, stored: Sequence[str]) -> UsageError:
    return UsageError(
        f"Connector {name} is one of the worker {owner}, which keeps {', '.join(stored)}; nothing was removed.",
        f"Take it off that worker with keyfold connectors delete {name} (or, if it comes from a file, by moving the "
        "file away and SIGHUP), or stop the worker; then try again.",
    )


@contextmanager
def _claimed(store: ConnectorStore, name: str, stored: Sequence[str]) -> Iterator[None]:
    """Keeps workers from taking up what is `stored` while it is removed. Raises UsageError if one has begun."""
    if not stored:
        yield
        return
    if not store.claim():
        raise _is_kept_error(name, str(store.owner() or "that has just begun"), stored)
    try:
        yield
    finally:
        store.release()


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask on; nothing was removed.", "Give --yes to go on without asking.")
    typer.echo("Remove this? It cannot be undone. [y/N] ", nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("Nothing was removed: the answer was not yes.")


def _remove(
    storage: Storage,
    location: Storage | None,
    settings: ConnectorConfig,
    clients: ClientSettings,
    found: DeletionPreview,
    forget: Callable[[], None],
) -> None:
    """Removes all that was found; `forget` removes what a worker keeps of it, so that it runs it no more."""
    from compactor.catalog import owner_lock
    from connectors.kafka.admin import Admin
    from connectors.kafka.producers import fence_all
    from connectors.operations import delete as deletion

    lock = owner_lock.OwnerLock(storage)
    if not lock.claim(owner_lock.this_process()):  # without the lock nothing is removed
        raise _is_run_error(settings.name, str(owner_lock.live_owner(storage) or "another process"))
    try:
        catalog = deletion.fence(storage, settings.name, owner_lock.this_process().text, SystemClock().now_ms())
        fence_all(clients.producer(), [settings.transactional_id(bucket) for bucket in range(found.plan.buckets)])
        admin = Admin(clients.admin())
        deletion.refuse_elsewhere(found, settings, admin)
        deletion.begin(storage, found.plan, catalog)
        forget()
        deletion.carry_out(storage, found.plan, settings, admin, location)
        deletion.refuse_begun_anew(found, settings, admin)
    finally:
        lock.release()


def _lines(found: DeletionPreview, settings: ConnectorConfig, folder: str, stored: Sequence[str] = ()) -> Iterator[str]:
    """Yields the lines that say what is removed, what stays, and what a person should know before the answer."""
    import humanize

    plan, size = found.plan, humanize.naturalsize(found.bytes, binary=True)
    if found.begun:
        yield f"An earlier delete of connector {settings.name} was not finished; this one finishes it."
    yield f"Of connector {settings.name} this removes:"
    yield f"  {folder}: catalog, runs, requests ({found.files:,} files, {size})"
    yield f"  consumer group {settings.group_id}, with the positions of {len(found.held):,} partitions"
    if settings.dead_letter_topic is not None:
        yield f"  consumer group {settings.redrive_group_id}, which says what keyfold dlq has sent back, if it is there"
    yield from (f"  {path}: what a worker has kept of it, as it was made or changed over REST" for path in stored)
    if plan.with_outputs:
        yield from (f"  output topic {one.topic}, with all its records" for one in plan.outputs)
        yield from (f"  snapshot {settings.snapshot_location}/{path}" for path in plan.snapshots)
    left = list(_left_lines(found, settings))
    if left:
        yield "It leaves, beside the source topics:"
        yield from left
    yield from _warning_lines(found, settings, folder)


def _left_lines(found: DeletionPreview, settings: ConnectorConfig) -> Iterator[str]:
    plan = found.plan
    if not plan.with_outputs:
        yield from (
            f"  output topic {one.topic}: a connector that begins anew refuses to publish into it; delete it "
            "(--outputs), or set another output.topic"
            for one in plan.outputs
        )
        yield from (f"  snapshot {settings.snapshot_location}/{path}" for path in plan.snapshots)
    for name in found.others:
        yield f"  topic {name}: nothing shows that this connector published it"
    if (found.strangers or not found.has_catalog) and settings.snapshot_location is not None:
        yield f"  snapshots in {settings.snapshot_location}/{settings.name} without a word of whose they are, if any"
    if settings.dead_letter_topic is not None:
        yield f"  dead letter topic {settings.dead_letter_topic}, which others may use too"


def _warning_lines(found: DeletionPreview, settings: ConnectorConfig, folder: str) -> Iterator[str]:
    if found.damage is not None:
        yield f"The catalog cannot be read: {found.damage}"
    elif not found.has_catalog and not found.begun:
        yield f"There is no catalog in {folder}: if a disk has to be mounted there, mount it first."
    for stranger in found.strangers:
        yield (
            f"Positions of group {settings.group_id} were committed for catalog {stranger}, which is not in {folder}. "
            f"If a worker elsewhere runs a connector {settings.name} on these brokers, they are its: do not go on then."
        )
