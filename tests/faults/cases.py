"""Runs cases one after the other on one scenario and appends the result of each to the matrix."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import pytest
from msgspec.structs import replace

from connectors.errors import EXIT_FENCED, EXIT_OK
from tests.faults import matrix
from tests.faults.scenario import CALM, RECOVERY_S, Scenario
from tests.faults.worker_process import TIMEOUT_S

RENEW_AFTER: Final = 12
"""Cases on one scenario: each check reads the whole topic, which grows."""


S = TypeVar("S", bound=Scenario)


class CaseOf(Generic[S]):
    """One fault at one step of a scenario. `outcome` is its text in the matrix."""

    def __init__(self, scenario: S) -> None:
        self.scenario = scenario
        self.outcome = "went on"
        self.seconds: float | None = None
        self._began = time.monotonic()

    def strikes(self) -> None:
        """Starts the time to recover, at the fault."""
        self._began = time.monotonic()

    def recovers(self, timeout_s: float = RECOVERY_S) -> None:
        """Waits until all records acknowledged by now are published."""
        self.scenario.until_publishing(timeout_s)
        self.seconds = time.monotonic() - self._began

    def fails(self, *texts: str) -> None:
        """Waits until the connector FAILED for good, with all `texts` in its error; its worker ends with it."""
        worker = self.scenario.worker
        assert worker is not None
        code = worker.wait(TIMEOUT_S)
        printed = " ".join(worker.printed().split())
        assert code not in (EXIT_OK, EXIT_FENCED), worker.tail()
        missing = [text for text in texts if text not in printed]
        assert missing == [], worker.tail()
        self.outcome = f"FAILED by name, exit {code}"

    def is_failing(self, *texts: str) -> None:
        """Waits until the connector FAILED with all `texts` in its error, to be started again by its worker."""
        self._is_logged("connector FAILED", *texts)
        self.outcome = "FAILED by name, goes on by itself"

    def is_waiting(self, *texts: str) -> None:
        """Waits until the connector waits for an outage to end, with all `texts` in its error."""
        self._is_logged("connector waits for an outage to end", *texts)
        self.outcome = "waits by name, goes on by itself"

    def _is_logged(self, event: str, *texts: str) -> None:
        worker = self.scenario.worker
        assert worker is not None
        wanted = (event, "restart_in_s", *texts)

        def reported() -> bool:
            return any(all(text in line for text in wanted) for line in worker.printed().splitlines())

        self.scenario.until(reported, f"the worker says {wanted}", TIMEOUT_S)

    def violations(self) -> list[str]:
        """Returns the first violations of a promise, one line each."""
        return self.scenario.violations()[:40]


Case = CaseOf[Scenario]


class CasesOf(Generic[S]):
    """The scenarios of a test file, one at a time, made by `make`; each for `renew_after` cases at most."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        make: Callable[[Path, str, int, Mapping[str, Any]], S],
        renew_after: int = RENEW_AFTER,
    ) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._make = make
        self._renew_after = renew_after
        self._number = 0
        self._now: tuple[Mapping[str, Any], S, int] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drop()

    def renew(self) -> None:
        """Gives the next case a new scenario, as this one breaks the current one."""
        self._drop()

    @contextmanager
    def case(self, fault: str, step: str, settings: Mapping[str, Any] = CALM) -> Iterator[CaseOf[S]]:
        """Runs a case on a scenario with `settings`: that of the case before, unless it failed.

        Skips the test where the matrix has the case already and FAULTS_GO_ON is set.
        """
        if (fault, step) in matrix.already_there():
            pytest.skip("ran at this commit already")
        case = CaseOf(self._field(settings))
        seed = case.scenario.seed
        try:
            yield case
        except pytest.skip.Exception:
            self._drop()
            raise
        except BaseException as error:
            self._drop()
            text = (str(error).splitlines() or [type(error).__name__])[0]
            _note(matrix.Result(fault=fault, step=step, outcome=f"{matrix.FAILED}: {text[:120]}", seed=seed))
            raise
        case.scenario.control.disarm()
        _note(matrix.Result(fault=fault, step=step, outcome=case.outcome, seconds_to_recover=case.seconds, seed=seed))

    def _field(self, settings: Mapping[str, Any]) -> S:
        if self._now is not None and (self._now[0] is not settings or self._now[2] >= self._renew_after):
            self._drop()
        if self._now is None:
            self._number += 1
            scenario = self._make(self._folder / str(self._number), self._bootstrap, self._number, settings)
            self._stack.enter_context(scenario)
            self._now = settings, scenario, 0
        _, scenario, done = self._now
        self._now = settings, scenario, done + 1
        return scenario

    def _drop(self) -> None:
        self._now = None
        self._stack.close()


Cases = CasesOf[Scenario]


def _note(result: matrix.Result) -> None:
    file = matrix.file()
    if file is not None:
        matrix.append(file, replace(result, commit=matrix.present()))
