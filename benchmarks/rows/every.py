"""All figures by their ids: those of a running worker, and those of a part of it."""

from __future__ import annotations

from typing import Final

from benchmarks.rows import worker_figures as figures
from benchmarks.rows.catalog import CATALOG
from benchmarks.rows.folding import FOLD
from benchmarks.rows.written import WRITTEN

FIGURES: Final = {**figures.FIGURES, **{one.id: one for one in (FOLD, CATALOG, WRITTEN)}}
