"""Says which deeds are offered for a connector, with what each means. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from connectors.runtime.lifecycle import TargetState
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector


class DeedOffer(Struct, frozen=True):
    """A deed: the end of its path, its button's label, what it does, and whether it is confirmed on a page first."""

    path: str
    label: str
    meaning: str
    asks_first: bool = False


PAUSE: Final = DeedOffer("pause", "Pause", "Takes nothing in and publishes nothing; what it has open stays open.")
RESUME: Final = DeedOffer("resume", "Resume", "Lets it run again.")
STOP: Final = DeedOffer("stop", "Stop", "Ends it and lets go of everything that it holds.")
RESTART: Final = DeedOffer("restart", "Restart", "Starts it again, with all of its tasks.")
CLEAN: Final = DeedOffer("clean", "Clean now", "Folds every partition fully, whatever its dirty ratio.")
SNAPSHOT: Final = DeedOffer("snapshot", "Snapshot now", "Takes a snapshot of every topic at what is published now.")
RESYNC: Final = DeedOffer(
    "resync",
    "Resync…",
    "Reads every source topic again from its start, as a new generation, and then makes the output equal to it. A key "
    "that does not come again gets a tombstone. The output stays as it is until all is read, which takes as long as "
    "the first time. It is refused if the source has lost records that were read before.",
    asks_first=True,
)
DELETE: Final = DeedOffer(
    "delete",
    "Delete…",
    "Ends the connector and forgets its config. What it has kept and published stays, as do its snapshots: `keyfold "
    "delete` removes those.",
    asks_first=True,
)
OFFERS: Final = {offer.path: offer for offer in (PAUSE, RESUME, STOP, RESTART, CLEAN, SNAPSHOT, RESYNC, DELETE)}


def offered(connector: Connector) -> tuple[DeedOffer, ...]:
    """Returns what a person may do with a connector as it is now."""
    return tuple(_offered(connector))


def _offered(connector: Connector) -> Iterator[DeedOffer]:
    target, config = connector.spec.target, connector.spec.config
    # While it is FAILED or waits, nothing is paused, and its thread refuses each request that no new run begins with.
    works = connector.status.state is not ConnectorState.FAILED and not connector.status.waits
    if target is not TargetState.RUNNING:
        yield RESUME
    elif works:
        yield PAUSE
    if target is not TargetState.STOPPED:
        yield RESTART
        if works and "compact" in config.cleanup_policy:
            yield CLEAN
        if works and config.snapshot_location is not None:
            yield SNAPSHOT
        yield STOP
        yield RESYNC
    if connector.spec.file is None:
        yield DELETE
