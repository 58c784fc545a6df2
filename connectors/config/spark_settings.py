"""Settings of Spark that nobody may change."""

from __future__ import annotations

from typing import Final

PINNED: Final[dict[str, tuple[str, str]]] = {
    "spark.speculation": ("false", "two attempts of one publish task would fence each other"),
    "spark.scheduler.mode": ("FAIR", "a full fold must not hold all slots"),
}
"""Settings that keyfold's protocol needs, each with the reason."""
