"""How a connector is told to stop: at once, or after the fold that runs."""

from __future__ import annotations

import pytest

from connectors.runtime.cancellation import StopToken


@pytest.mark.parametrize(
    ("asked", "patient"),
    [((True,), True), ((False,), False), ((True, True), True), ((True, False), False), ((False, True), False)],
)
def test_who_is_in_a_hurry_wins(asked: tuple[bool, ...], patient: bool) -> None:
    """A changed file waits for a running fold (SIGHUP); a worker that is told to end (SIGTERM) does not."""
    stop = StopToken()
    for one in asked:
        stop.ask(patient=one)
    assert (stop.is_set(), stop.patient) == (True, patient)
