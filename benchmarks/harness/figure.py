"""What a figure is: values that one program comes to by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct


class Figure(Struct, frozen=True):
    """`measure` takes the bootstrap servers of a broker of its own and gives values by name.

    `limits`: what each must stay under, and what is aimed at; `at_least`: the same for what must not stay under.
    `same_as`: the figure whose rounds have these values too. Without `broker` it takes an empty string. It runs in a
    process of its own; how many records there are is multiplied by `datasets.scale()`.
    """

    id: str
    what: str
    limits: Mapping[str, tuple[float, float]]
    measure: Callable[[str], dict[str, float]]
    at_least: Mapping[str, tuple[float, float]] = {}
    same_as: str = ""
    broker: bool = True

    @property
    def source(self) -> str:
        """The figure whose rounds have its values."""
        return self.same_as or self.id


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that `share` of them do not exceed."""
    rising = sorted(values)
    return rising[min(len(rising) - 1, int(len(rising) * share))]
