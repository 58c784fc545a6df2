"""Which classes are compared, with which configurations, over which records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.support.connect_classes.forms import record_form
from tests.support.connect_classes.generated import Generator, generated

EACH: Final = 150
"""How many answers of a class are kept."""
Config = Mapping[str, str]


class Draw(Struct, frozen=True):
    """How many are drawn, and from which seed: None for the ones that are kept, the same each time."""

    count: int = EACH
    seed: int | None = None

    def configs(self, configs: Sequence[Config] | Callable[[Generator], Config]) -> Iterator[dict[str, str]]:
        """Yields a configuration for each: in turn, or by chance."""
        if callable(configs):
            numbers = random.Random(self.seed or 0)
            yield from (dict(configs(Generator(numbers.getrandbits(62)))) for _ in range(self.count))
        else:
            yield from (dict(configs[number % len(configs)]) for number in range(self.count))


class Case(Struct, frozen=True):
    """A class with its configurations, among which records are dealt out; `call` says what is asked of it.

    `bare_nulls`: where our class gives a null no schema and the real one does, both mean the same. `variant` tells a
    case from others of its class.
    """

    name: str
    configs: Sequence[Config] | Callable[[Generator], Config]
    call: str = "transform"
    records: Any = generated(Generator.record)
    bare_nulls: bool = False
    variant: str = ""

    @property
    def simple(self) -> str:
        """The class's name without its package, as a file's."""
        return ".".join(filter(None, (*self.name.rpartition(".")[2].split("$"), self.variant)))

    def asked(self, draw: Draw = Draw()) -> Iterator[dict[str, Any]]:  # noqa: B008  # frozen
        """Yields what is asked: records, each with one of the configurations."""
        for config, one in zip(draw.configs(self.configs), drawn(self.records, draw), strict=True):
            record = record_form(one)
            for side, other in (("Key", "value"), ("Value", "key")):
                if self.name.endswith(f"${side}"):  # what it does not look at would only take room
                    record |= {other: None, f"{other}_schema": None}
            yield {"call": self.call, "class": self.name, "config": config, "record": record}


def drawn(strategy: Any, draw: Draw) -> list[Any]:
    """Draws so many values, the same ones each time with one version of hypothesis and one seed."""
    values: list[Any] = []

    @settings(
        max_examples=draw.count,
        derandomize=draw.seed is None,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(strategy, min_size=4, max_size=4))
    def collect(some: list[Any]) -> None:
        values.extend(some)

    (collect if draw.seed is None else seed(draw.seed)(collect))()
    return values[:: max(1, len(values) // draw.count)][: draw.count]
