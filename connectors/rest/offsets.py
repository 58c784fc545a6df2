"""Answers for the offsets of a connector: up to where each partition is published (KIP-875).

On its own because a connector that is stopped is asked for its catalog, which no other endpoint reads.
"""

from __future__ import annotations

from fastapi import APIRouter

from compactor.catalog.catalog import Catalog
from compactor.model.state import CatalogState
from connectors.config.engine_settings import connector_storage
from connectors.rest import shapes
from connectors.rest.context import ContextDependency, RestContext, error_responses
from connectors.runtime.supervised_connector import Connector

router = APIRouter(prefix="/connectors/{connector}/offsets", tags=["offsets"])


@router.get("", response_model=shapes.ConnectorOffsets, responses=error_responses(404))
def get_offsets(context: ContextDependency, connector: str) -> shapes.ConnectorOffsets:
    """Lists the next source offset to be published of each partition, as the catalog has it, which decides."""
    state = _state(context, context.herder.connector(connector))
    found = [
        shapes.ConnectorOffset(
            partition=shapes.SourcePartition(kafka_topic=log.topic, kafka_partition=log.partition),
            offset=shapes.SourceOffset(kafka_offset=log.published),
        )
        for log in sorted(state.logs, key=lambda log: log.tp)
    ]
    return shapes.ConnectorOffsets(offsets=found)


def _state(context: RestContext, connector: Connector) -> CatalogState:
    """Returns what this process knows of the catalog; of a connector that does not run it is read."""
    known = connector.catalog_state
    if known is not None:
        return known
    return Catalog.open(connector_storage(context.worker, connector.name), connector.name).state
