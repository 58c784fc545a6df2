"""How a connector is told to stop."""

from __future__ import annotations

import threading


class StopToken(threading.Event):
    """Set: the connector ends after the step that runs now. `patient`: a running fold may finish as well.

    `break_at`, in monotonic seconds, is when that step is broken off; None lets it take its time.
    """

    patient: bool = False
    break_at: float | None = None

    def ask(self, *, patient: bool = False, break_at: float | None = None) -> None:
        """Asks for the end; who is in a hurry wins over who is patient."""
        self.patient = patient and (self.patient or not self.is_set())
        self.break_at = min((at for at in (self.break_at, break_at) if at is not None), default=None)
        self.set()

    def is_over(self, monotonic: float) -> bool:
        """Whether what still runs is to be broken off now."""
        return self.is_set() and self.break_at is not None and monotonic >= self.break_at
