"""Which classes are compared, with which configurations, over which records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.support.connect_classes.forms import record_form
from tests.support.connect_classes.records import records

EACH: Final = 200


class Case(Struct, frozen=True):
    """A class with its configurations, among which records are dealt out; `call` says what is asked of it.

    `bare_nulls`: where our class gives a null no schema and the real one does, both mean the same.
    """

    name: str
    configs: Sequence[Mapping[str, str]]
    call: str = "transform"
    records: Any = records()
    bare_nulls: bool = False

    @property
    def simple(self) -> str:
        """The class's name without its package, as a file's."""
        return self.name.rpartition(".")[2].replace("$", ".")

    def asked(self) -> Iterator[dict[str, Any]]:
        """Yields what is asked: EACH records, each with one of the configurations."""
        for number, one in enumerate(drawn(self.records, EACH)):
            config = dict(self.configs[number % len(self.configs)])
            record = record_form(one)
            for side, other in (("Key", "value"), ("Value", "key")):
                if self.name.endswith(f"${side}"):  # what it does not look at would only take room
                    record |= {other: None, f"{other}_schema": None}
            yield {"call": self.call, "class": self.name, "config": config, "record": record}


def drawn(strategy: Any, count: int) -> list[Any]:
    """Draws so many values, the same ones each time with one version of hypothesis."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(strategy, min_size=4, max_size=4))
    def collect(some: list[Any]) -> None:
        found.extend(some)

    collect()
    return found[:: max(1, len(found) // count)][:count]
