"""Decides what becomes of a connector's runs: (target, run state, event) → (run state, effect). Pure.

The model is Kafka Connect's `WorkerConnector`: an enum of states and one transition. A connector's thread makes one run
after the other (`supervisor.py`); each takes over, reads and publishes until it ends. The target is the herder's: what
REST, a file or SIGHUP wants. Everything that happens to a connector is an event, and goes through `transition`:

            START               UP             PAUSED
    INIT ──────────► STARTING ──────► RUNNING ───────► PAUSED
                      ▲ ▲ │              │  ◄───────      │
                      │ │ │              │      UP        │
                      │ │ └──────┬───────┴────────┬───────┘   (a run is under way: STARTING, RUNNING, PAUSED)
                      │ │        │ RETRIABLE      │ RESTART
                      │ │        ▼ or FATAL       ▼
                      │ │  WAITING, FAILED ──► RESTARTING
                      │ └────────┘ DUE   RESTART  │ the run has ended
                      └───────────────────────────┘

A connector that is to stop never goes back: what is wanted later begins with another supervisor. docs/design.md ("A
connector's life") says who sends which event.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto


class TargetState(StrEnum):
    """What a connector is to be (Kafka Connect's `TargetState`, KIP-875). It is stored, and survives the worker."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class RunState(Enum):
    """What a connector's thread does."""

    INIT = auto()  # It was not started: Spark is not up yet
    STARTING = auto()  # A run has begun, and has not reported yet: it takes over, and reads positions
    RUNNING = auto()  # A run takes in and publishes
    # A run is there and holds what it has: its thread takes in and publishes nothing, and the step before has ended. A
    # claimed micro-batch may still be read and delivered, and is taken after the pause. Maintenance goes on, and old
    # positions are committed again.
    PAUSED = auto()
    RESTARTING = auto()  # The run, or the wait after a failure, is being ended; another run follows at once
    WAITING = auto()  # The last run failed. The next one begins after a back-off, or as soon as an outage is over
    FAILED = auto()  # The last run failed with what an operator has to mend. The thread waits for his restart
    STOPPING = auto()  # The run, or the wait, is being ended, and none follows
    ENDED = auto()  # The thread has ended, or is about to and does nothing more


class RunEvent(Enum):
    """What happens to a connector."""

    TARGET = auto()  # The target was set, to the one that `transition` gets
    START = auto()  # The herder starts the thread
    NOT_STARTED = auto()  # There is no thread left for it: the herder tries again
    RESTART = auto()  # An operator, a changed file or a request of a command wants another run
    UP = auto()  # The run reports that it takes in and publishes
    PAUSED = auto()  # The run reports that it is paused
    DONE = auto()  # The run has ended without an error: it was ended, or `--once` has nothing left to do
    GO_ON = auto()  # The run has ended as it set a source topic aside, or met a truncate: the next one begins at once
    RETRIABLE = auto()  # The run has failed, and a later one may work
    FATAL = auto()  # The run has failed, and no other works before an operator has mended something
    LAST = auto()  # The run has failed, and this process begins no other: Spark is gone, or it is `--once`
    FENCED = auto()  # Another process has taken the connector over: it is that one's
    DUE = auto()  # The wait after a failure is over, whatever has ended it


class RunEffect(Enum):
    """What the supervisor does for a transition."""

    NONE = auto()
    PAUSE_RUN = auto()  # Has the run take nothing in; it reports PAUSED once nothing is under way
    RESUME_RUN = auto()  # Has the run take in again
    END_RUN = auto()  # Stops the run, or the wait
    BEGIN_RUN = auto()  # Begins a run, with a stop token of its own
    BEGIN_AGAIN = auto()  # Begins a run unless the catalog shows a newer owner: that is FENCED
    SHOW_STOPPED = auto()  # Writes STOPPED into the status, and forgets the error of the last run
    SHOW_FAILURE = auto()  # Writes the error of the run into the status


Step = tuple[RunState, RunEffect]

RUN_STATES = (RunState.STARTING, RunState.RUNNING, RunState.PAUSED)
"""A run is under way, and was not told to end."""
RUN_ENDS = (RunEvent.DONE, RunEvent.GO_ON, RunEvent.RETRIABLE, RunEvent.FATAL, RunEvent.LAST)
"""Events that end a run, except FENCED."""

# Transitions of STARTING, RUNNING and PAUSED: the end of a run that was not told to end, and its reports.
_OF_A_RUN: dict[RunEvent, Step] = {
    RunEvent.UP: (RunState.RUNNING, RunEffect.NONE),
    RunEvent.PAUSED: (RunState.PAUSED, RunEffect.NONE),
    RunEvent.RESTART: (RunState.RESTARTING, RunEffect.END_RUN),
    RunEvent.DONE: (RunState.ENDED, RunEffect.SHOW_STOPPED),
    RunEvent.GO_ON: (RunState.STARTING, RunEffect.BEGIN_RUN),
    RunEvent.RETRIABLE: (RunState.WAITING, RunEffect.SHOW_FAILURE),
    RunEvent.FATAL: (RunState.FAILED, RunEffect.SHOW_FAILURE),
    RunEvent.LAST: (RunState.ENDED, RunEffect.SHOW_FAILURE),
}
# Of a connector without a run.
_OF_A_WAIT: dict[RunEvent, Step] = {
    RunEvent.RESTART: (RunState.RESTARTING, RunEffect.END_RUN),
    RunEvent.DUE: (RunState.STARTING, RunEffect.BEGIN_AGAIN),
}
_TRANSITIONS: dict[RunState, dict[RunEvent, Step]] = {
    # A restart is nothing here: the first run is the restart. Without brokers `--once` fails before its first run.
    RunState.INIT: {
        RunEvent.START: (RunState.STARTING, RunEffect.BEGIN_RUN),
        RunEvent.LAST: (RunState.ENDED, RunEffect.SHOW_FAILURE),
    },
    RunState.STARTING: {**_OF_A_RUN, RunEvent.NOT_STARTED: (RunState.INIT, RunEffect.NONE)},
    RunState.RUNNING: _OF_A_RUN,
    RunState.PAUSED: _OF_A_RUN,
    RunState.WAITING: _OF_A_WAIT,
    RunState.FAILED: _OF_A_WAIT,
    # What a run fails with after it was told to end was caused by that: one signal may have ended Spark's JVM too.
    # RESTART stays an END_RUN: a token that is set already may only become stronger.
    RunState.RESTARTING: {
        RunEvent.RESTART: (RunState.RESTARTING, RunEffect.END_RUN),
        RunEvent.DUE: (RunState.STARTING, RunEffect.BEGIN_AGAIN),
        **dict.fromkeys(RUN_ENDS, (RunState.STARTING, RunEffect.BEGIN_AGAIN)),
    },
    RunState.STOPPING: {
        RunEvent.RESTART: (RunState.STOPPING, RunEffect.END_RUN),
        RunEvent.DUE: (RunState.ENDED, RunEffect.SHOW_STOPPED),
        **dict.fromkeys(RUN_ENDS, (RunState.ENDED, RunEffect.SHOW_STOPPED)),
    },
    RunState.ENDED: {},
}


def transition(target: TargetState, state: RunState, event: RunEvent) -> Step:
    """Returns the state after `event`, and what is to be done for it. What means nothing in a state changes nothing."""
    if event is RunEvent.TARGET:
        return _retarget(target, state)
    if event is RunEvent.FENCED and state is not RunState.ENDED:
        return RunState.ENDED, RunEffect.SHOW_FAILURE
    return _TRANSITIONS[state].get(event, (state, RunEffect.NONE))


def _retarget(target: TargetState, state: RunState) -> Step:
    """Returns what a new target does. A run that has not begun looks at the target when it does."""
    has_run = state in RUN_STATES or state is RunState.RESTARTING
    if target is TargetState.STOPPED:
        if state is RunState.ENDED:
            return state, RunEffect.NONE
        # An operator still has to mend what a FAILED one failed with: it keeps its error.
        ends_at_once = state in (RunState.INIT, RunState.FAILED)
        return (RunState.ENDED if ends_at_once else RunState.STOPPING), RunEffect.END_RUN
    if not has_run:
        return state, RunEffect.NONE
    return state, RunEffect.PAUSE_RUN if target is TargetState.PAUSED else RunEffect.RESUME_RUN
