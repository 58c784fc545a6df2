"""How a connector is told to stop."""

from __future__ import annotations

import threading


class Stop(threading.Event):
    """Set: the connector ends after the step that runs now. `patient`: a running fold may finish as well."""

    patient: bool = False

    def ask(self, *, patient: bool = False) -> None:
        """Asks for the end; who is in a hurry wins over who is patient."""
        self.patient = patient and (self.patient or not self.is_set())
        self.set()
