"""All figures by their ids: those of a running worker, and those of a part of it."""

from __future__ import annotations

from typing import Final

from benchmarks import figures
from benchmarks.catalog import CATALOG
from benchmarks.folding import FOLD
from benchmarks.written import WRITTEN

FIGURES: Final = {**figures.FIGURES, **{one.id: one for one in (FOLD, CATALOG, WRITTEN)}}
