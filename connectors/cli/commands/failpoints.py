"""`keyfold failpoints`: the places at which a test can make a step of docs/protocol.md fail."""

from __future__ import annotations

from compactor.failpoints import STEPS, VARIABLE
from connectors.cli.options import UnusedWorkerOption
from connectors.cli.output import say
from connectors.progress.terminal import table


def failpoints(worker: UnusedWorkerOption = None) -> None:
    """Lists the names that KEYFOLD_FAILPOINTS takes, with the step of docs/protocol.md and when each is hit.

    Examples:
        keyfold failpoints
    """
    rows = ((name, *text.split(maxsplit=1)) for name, text in STEPS.items())
    say(table(("NAME", "STEP", "HIT WHEN"), rows))
    say()
    say(f'Set one with {VARIABLE}="NAME=kill|error|sleep:MS[,…]"; NAME@N=… fires from the Nth hit on.')
