"""Holds what one run of a connector works with, from its take-over to its stop."""

from __future__ import annotations

from typing import NamedTuple

from compactor.catalog.catalog import Catalog
from compactor.engine import Engine
from compactor.maintenance import Maintenance
from connectors.runtime.kafka_broker import KafkaBroker
from connectors.runtime.request_handler import RequestHandler


class TaskComponents(NamedTuple):
    """The catalog and the brokers that the take-over gave, and what works on them."""

    catalog: Catalog
    broker: KafkaBroker
    engine: Engine
    maintenance: Maintenance
    requests: RequestHandler
