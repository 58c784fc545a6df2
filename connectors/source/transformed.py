"""Writes what was read into files (step 3), through the connector's chain where it has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from compactor.ingest.ingest import write_level0
from connectors.registry.patience import Patience
from connectors.source.options import SourceOptions


def write_transformed(
    batches: Iterable[pa.RecordBatch], options: SourceOptions, portion: int = 0, patience: Patience | None = None
) -> Iterator[pa.RecordBatch]:
    """Writes `batches` (record.SOURCE) as the connector's chain makes them; yields rows of `ingest.WRITTEN`.

    Without a chain they are written as they are. `patience` limits what the chain takes; None: nothing does. Raises
    RegistryError, PortionLateError, and what `write_level0` raises.
    """
    if options.chain is None:
        yield from write_level0(batches, options.intake, portion)
        return
    from connectors.chain.chain_pool import borrowed  # what it imports takes time, and few connectors need it
    from connectors.placeholders import resolve

    with borrowed(options.chain, resolve, keyed=options.intake.keyed, patience=patience) as chain:
        yield from write_level0(chain.through(batches), options.intake, portion)
