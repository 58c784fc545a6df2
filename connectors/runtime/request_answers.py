"""What a supervisor answers to requests: that its connector runs, what was changed, or why nothing was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from compactor.catalog.requests import Answer
from compactor.model.times import moment
from connectors.runtime.offset_change import MAY_BE_DONE, ChangedLog
from connectors.runtime.status import Status

RUNNING: Final = Answer(ok=True, result={"state": "RUNNING"})
MEND: Final = (
    "Mend what the error names. If that is in the connector's file, send the worker SIGHUP, which reads it again; "
    "otherwise `keyfold restart` starts the connector."
)
NOT_DONE: Final = "Nothing was done of what was asked: run the command again then."


class Doubt(Struct, frozen=True):
    """What is known of a request as a run has failed.

    `begun`: the run was for it. `was_resync`: it asked to change offsets. `is_in_doubt`: nothing tells if they changed.
    """

    begun: bool
    was_resync: bool
    is_in_doubt: bool


def failure_answer(connector: str, current: Status, doubt: Doubt, *, unreachable: bool) -> Answer:
    """Returns the answer while a connector is FAILED, or waits for an outage to end."""
    at_ms = current.next_restart_ms
    state = "waits for an outage to end" if current.waits else "is FAILED"
    when = "" if at_ms is None else f", and is started again at {moment(at_ms)} or before"
    is_in_doubt = doubt.begun and doubt.is_in_doubt
    again = MAY_BE_DONE if is_in_doubt or (doubt.begun and not doubt.was_resync) else NOT_DONE
    action = again if at_ms is not None else f"{MAY_BE_DONE} {MEND}" if is_in_doubt else MEND
    message = f"Connector {connector} {state}{when}: {current.error}"
    return Answer(ok=False, message=message, action=action, unreachable=current.waits or unreachable)


def done_answer(changed: Sequence[ChangedLog]) -> Answer:
    """Returns the answer to a resync that has changed these logs."""
    return Answer(ok=True, result={"logs": msgspec.to_builtins(changed)})
