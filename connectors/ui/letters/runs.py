"""Has dry runs and redrives of dead letters made, each on a thread of its own, and keeps what came of them.

A run can be cancelled between two transactions: what has gone is noted by then (protocol.md, D1 to D6), and the next
run goes on with the rest. So can a worker that ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from connectors.clock import Clock
from connectors.config.secrets import logged_text
from connectors.counted import counted
from connectors.errors import DEFECT, BusyError, ConflictError, UsageError
from connectors.operations.redrive.run import DeadLetters, RedriveKafka, RedriveResult
from connectors.rest.context import RestContext
from connectors.runtime.supervised_connector import Connector
from connectors.threads import join_within, started
from connectors.ui.deeds import Deed, Deeds
from connectors.ui.letters.choices import LetterChoice
from connectors.ui.letters.dry_counts import DryCounts, KindOutcome, LetGoAgain
from connectors.ui.letters.limits import SHOWN_KINDS, CutShortError, LetterLimit, ReadBounds

DRY_RUN: Final = "Dry run of a redrive"
REDRIVE: Final = "Redrive"
RUN: Final = ReadBounds(letters=200_000, size=1 << 30, seconds=300.0)
"""What one run reads at most, each letter that has gone once more. A topic with more is for `keyfold dlq redrive`."""
MOST_RUNNING: Final = 4
"""Runs that are made side by side, each of another connector: they compute in the worker's process."""
MOST_KEPT: Final = 50
"""Runs that are kept for their pages, the newest; each has some 100 kB at most."""

_END_MS: Final = 2_000
"""How long (ms) the end of a worker waits until all runs have ended, which takes a transaction at most. One that is
killed in its midst is as good as one that was not begun."""


class RunOutcome(Struct, frozen=True):
    """What came of a run; `result` is None if it did not come to its end. `untried`: why not all letters were tried.

    Of kinds the first SHOWN_KINDS are kept, and the number of the others.
    """

    result: RedriveResult | None = None
    kinds: tuple[KindOutcome, ...] = ()
    more_kinds: int = 0
    again: tuple[LetGoAgain, ...] = ()
    come_back: int = 0
    untried: str | None = None


class LetterRun:
    """A dry run or a redrive. `letters` says how many were read so far, `sent` how many have gone, or would."""

    def __init__(
        self,
        connector: Connector,
        choice: LetterChoice,
        deed: Deed,
        clock: Clock,
        stopped: threading.Event,
        *,
        dry: bool,
    ) -> None:
        self.deed: Final = deed
        self.choice: Final = choice
        self.is_dry: Final = dry
        self.config: Final = connector.spec.config
        # Tells the connector from another one that had its name before.
        self.since_ms: Final = connector.spec.since_ms
        # Ends it early once it is set.
        self.cancelled: Final = threading.Event()
        self.limit: Final = LetterLimit(RUN, clock, self.cancelled, stopped)
        # Changed by the run's thread alone.
        self.sent = 0
        # The offset that it has come to in each partition.
        self.came_to: dict[int, int] = {}
        # The deed as it ended and what came of it, None while it is under way; set once, by LetterRuns.
        self.end: tuple[Deed, RunOutcome] | None = None
        # Whether a redrive has followed this dry run; only ever set.
        self.is_used = False

    @property
    def outcome(self) -> RunOutcome | None:
        """What came of it, None while it is under way."""
        return self.end[1] if self.end else None

    @property
    def letters(self) -> int:
        """How many letters were read so far."""
        return self.limit.letters

    @property
    def may_go(self) -> bool:
        """Whether it is a dry run after which something can be sent."""
        done = self.outcome.result if self.outcome else None
        return self.is_dry and not self.is_used and done is not None and bool(done.sent)


class LetterRuns:
    """Makes runs, one of a connector at a time; threads share it. `kafka` is what letters are sent back with."""

    def __init__(self, context: RestContext, deeds: Deeds, kafka: RedriveKafka | None = None) -> None:
        self._context = context
        self._deeds = deeds
        self._kafka = kafka or RedriveKafka()
        # By the id of their deed, the oldest first; and the connectors of those that are under way, with their thread.
        # Both are changed under the lock.
        self._runs: OrderedDict[str, LetterRun] = OrderedDict()
        self._running: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        # Set once the worker ends.
        self._stopped = threading.Event()

    def named(self, connector: Connector, run_id: str) -> LetterRun | None:
        """Returns the run of an address, None if it is kept no more, or is another connector's."""
        with self._lock:
            run = self._runs.get(run_id)
        return run if run is not None and _is_of(run, connector) else None

    def of(self, connector: Connector) -> LetterRun | None:
        """Returns the newest run of a connector, None if none is kept."""
        with self._lock:
            return next((run for run in reversed(self._runs.values()) if _is_of(run, connector)), None)

    def begin_dry(self, connector: Connector, choice: LetterChoice, deed: Deed) -> LetterRun:
        """Begins to count what `choice` would send back. Raises UsageError, ConflictError, BusyError."""
        return self._begin(connector, choice, deed, dry=True)

    def begin(self, connector: Connector, dry_run: LetterRun, deed: Deed) -> LetterRun:
        """Begins to send back what a dry run has chosen, and no more letters than that.

        Raises UsageError if it has chosen nothing, was followed already, or is of another config; ConflictError,
        BusyError.
        """
        done = dry_run.outcome.result if dry_run.outcome else None
        if done is None or not dry_run.may_go:
            raise UsageError("There is nothing to send back after this dry run.", "Do another dry run first.")
        if dry_run.config is not connector.spec.config:
            raise UsageError(
                f"The config of connector {connector.name} has changed since the dry run.", "Do another dry run first."
            )
        choice = replace(dry_run.choice, limit=sum(done.sent.values()), until=dry_run.came_to)
        run = self._begin(connector, choice, deed, dry=False)
        dry_run.is_used = True
        return run

    def stop(self) -> None:
        """Ends the runs that are under way."""
        self._stopped.set()
        with self._lock:
            waiting = [*self._running.values()]
        join_within(waiting, _END_MS, self._context.clock)

    def _begin(self, connector: Connector, choice: LetterChoice, deed: Deed, *, dry: bool) -> LetterRun:
        if connector.spec.config.dead_letter_topic is None:
            raise UsageError(
                f"Connector {connector.name} has no dead letter topic.",
                "Set errors.deadletterqueue.topic.name, with errors.tolerance=all.",
            )
        run = LetterRun(connector, choice, deed, self._context.clock, self._stopped, dry=dry)
        thread = threading.Thread(target=self._run, args=(run,), name="page-redrive", daemon=True)
        with self._lock:
            if connector.name in self._running:
                raise ConflictError(
                    f"A redrive of connector {connector.name}, or a dry run, is under way.", "Let it end, or cancel it."
                )
            if len(self._running) >= MOST_RUNNING:
                raise BusyError(f"{MOST_RUNNING} redrives and dry runs are under way.", "Try again later.")
            self._running[connector.name] = thread
            self._runs[deed.id] = run
            over = [run_id for run_id, kept in self._runs.items() if kept.end is not None]
            for run_id in over[: max(0, len(self._runs) - MOST_KEPT)]:
                del self._runs[run_id]
        try:
            started(thread)
        except BaseException:
            with self._lock:
                self._running.pop(connector.name, None)
                self._runs.pop(deed.id, None)
            raise
        return run

    def _run(self, run: LetterRun) -> None:
        said, ok = DEFECT, False
        run_outcome = RunOutcome()
        try:
            run_outcome = self._made(run)
            said, ok = words_of(run, run_outcome), True
        except CutShortError as error:
            said = _cut(run, str(error))
        except KeyfoldError as error:
            said = f"{_went(run)}{logged_text(str(error))}"
        finally:
            deed = self._deeds.end(run.deed, said, self._context.clock.now_ms(), ok=ok)
            with self._lock:
                self._running.pop(run.deed.connector, None)
                run.end = deed, run_outcome

    def _made(self, run: LetterRun) -> RunOutcome:
        dead = DeadLetters(self._context.worker, run.config, run.limit.of(self._kafka))
        tries = DryCounts(self._context.worker, run.config, self._context.clock, run.limit.is_ended)

        def report(count: int) -> None:
            run.sent = count

        chosen = tries.take if run.is_dry else lambda _: None
        result = dead.redrive(
            run.choice.selection,
            dry_run=run.is_dry,
            limit=run.choice.limit,
            until=run.choice.until,
            report=report,
            chosen=chosen,
            came_to=run.came_to.update,
        )
        kinds = tries.kinds()
        more = max(0, len(kinds) - SHOWN_KINDS)
        return RunOutcome(result, kinds[:SHOWN_KINDS], more, tuple(tries.again), tries.come_back, tries.untried)


def _is_of(run: LetterRun, connector: Connector) -> bool:
    """Returns whether a run is of the connector that has the name now."""
    return (run.deed.connector, run.since_ms) == (connector.name, connector.spec.since_ms)


def words_of(run: LetterRun, outcome: RunOutcome) -> str:
    """Returns a sentence about a run that has come to its end."""
    result = outcome.result or RedriveResult({}, {})
    count, left = sum(result.sent.values()), sum(result.left.values())
    parts = [f"{counted(count, 'letter')} {'would go' if run.is_dry else 'went'} back to their topics"]
    parts += [f"{outcome.come_back:,} of them would be let go again"] if outcome.come_back else []
    parts += [counted(left, "stays", "stay")] if left else []
    parts += [f"{result.already:,} went before"] if result.already else []
    return f"{'; '.join(parts)}."


def _went(run: LetterRun) -> str:
    """Returns how many letters a redrive sent before it was ended; those of its last transaction may have gone, too."""
    return f"{counted(run.sent, 'letter')} went back before. " if not run.is_dry and run.sent else ""


def _cut(run: LetterRun, why: str) -> str:
    rest = "" if run.is_dry else " What has gone is noted; the rest stays for another run."
    looked = f"{counted(run.letters, 'letter was', 'letters were')} read"
    return f"It ended early: {why}. {_went(run)}{looked}.{rest}"
