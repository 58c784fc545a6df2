"""One life of a connector, from its take-over to its end."""

from __future__ import annotations

from typing import NamedTuple

from compactor.engine import Engine
from compactor.maintenance import Maintenance
from connectors.runtime.request_handler import RequestHandler
from connectors.runtime.takeover import Owned


class TaskComponents(NamedTuple):
    """What one life of a connector works with, once it has taken over."""

    owned: Owned
    engine: Engine
    upkeep: Maintenance
    answers: RequestHandler
