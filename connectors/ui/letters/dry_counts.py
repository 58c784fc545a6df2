"""Counts by class the letters that a dry run chooses, and tries which of them would be let go again.

The connector's converters and transforms are applied to their records as they are set now; nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from connectors.chain_turns import DRIVERS, ChainTurn
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.secrets import logged_text
from connectors.config.worker import WorkerConfig
from connectors.errors import PatternError, PortionLateError, RegistryError
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.producer import RedriveTargets
from connectors.operations.redrive.trial import rejections
from connectors.registry.patience import Patience
from connectors.rejection import Rejection, Stage
from connectors.ui.texts import bounded

TRY_S: Final = 10.0
"""How long (s) records are tried, in turns with the chains of the connectors: tens of thousands of small ones."""
AGAIN: Final = 20
"""Letters that are named of those that would be let go again."""
_NAME: Final = 250
_WHY: Final = 1_000
"""Characters that are kept of an error; a row shows its first line."""


class KindOutcome(Struct, frozen=True):
    """Letters of a kind: how many would go, and of those that were `tried`, how many would be let go `again`."""

    topic: str
    stage: str
    class_name: str
    exception: str
    letters: int = 0
    tried: int = 0
    again: int = 0


class LetGoAgain(Struct, frozen=True):
    """A letter with a record that would be let go again, and why."""

    partition: int
    offset: int
    stage: str
    class_name: str
    why: str


class DryCounts:
    """Takes what a dry run chooses; `stopped` ends what is tried. Used by one thread.

    `again` has the first of the `come_back` letters that would be let go again, `untried` says why some were not tried.
    """

    def __init__(
        self, worker: WorkerConfig, connector: ConnectorConfig, clock: Clock, stopped: Callable[[], bool]
    ) -> None:
        self.again: list[LetGoAgain] = []
        self.come_back = 0
        self.untried: str | None = None
        self._chain = connector.chain_spec(worker.given)
        self._keyed = "compact" in connector.cleanup_policy
        self._clock = clock
        self._stopped = stopped
        self._left_ms = round(TRY_S * 1_000)
        self._kinds: dict[tuple[str, str, str, str], KindOutcome] = {}

    def kinds(self) -> tuple[KindOutcome, ...]:
        """Returns the kinds, those with the most letters first."""
        return tuple(sorted(self._kinds.values(), key=lambda kind: -kind.letters))

    def take(self, targets: RedriveTargets) -> None:
        """Counts letters that would go to their targets, and tries them as long as there is time."""
        letters = [(target.topic, letter) for letter, target in targets]
        outcomes = self._tried(letters)
        for place, (topic, letter) in enumerate(letters):
            self._count(topic, letter, outcomes[place] if outcomes is not None else None, is_tried=outcomes is not None)

    def _tried(self, letters: list[tuple[str, Letter]]) -> list[Rejection | None] | None:
        """Returns why each would be let go; None if they were not tried, and why stands in `untried` then."""
        if self.untried is not None or not letters:
            return None
        began_ms = self._clock.monotonic_ms()
        left_s = self._left_ms / 1_000
        turn = ChainTurn(DRIVERS, self._stopped)
        patience = Patience(left_s, left_s, self._stopped, turn=turn)
        try:
            return rejections(self._chain, letters, patience, keyed=self._keyed)
        except PortionLateError:
            self.untried = f"to try {TRY_S:g} s of them is the most"
        except (RegistryError, PatternError) as error:
            self.untried = _said(error)
        finally:
            self._left_ms = max(1, self._left_ms - (self._clock.monotonic_ms() - began_ms))
        return None

    def _count(self, topic: str, letter: Letter, outcome: Rejection | None, *, is_tried: bool) -> None:
        said = letter.context
        stage, class_name, exception = (
            bounded(said.get(name, ""), _NAME) for name in ("stage", "class.name", "exception.class.name")
        )
        place = (topic, stage, class_name, exception)
        # Only the brokers say whether they take what they have refused before.
        counts = is_tried and (outcome is not None or said.get("stage") != Stage.KAFKA_PRODUCE.value)
        kind = self._kinds.get(place) or KindOutcome(*place)
        self._kinds[place] = replace(
            kind,
            letters=kind.letters + 1,
            tried=kind.tried + counts,
            again=kind.again + (outcome is not None),
        )
        self.come_back += outcome is not None
        if outcome is not None and len(self.again) < AGAIN:
            why = bounded(logged_text(outcome.message), _WHY)
            self.again.append(LetGoAgain(letter.partition, letter.offset, outcome.stage.value, outcome.class_name, why))


def _said(error: KeyfoldError) -> str:
    return logged_text(error.message).removesuffix(".")
