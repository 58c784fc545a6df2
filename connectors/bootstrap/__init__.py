"""Reads a table from its newest snapshot and the output topic after it, without Spark: docs/bootstrap.md."""

from connectors.bootstrap.changes import Changes
from connectors.bootstrap.opened import OpenedTable, open_table, resume
from connectors.bootstrap.output_log import Clients
from connectors.bootstrap.position import ReaderPosition
from connectors.bootstrap.records import Change, TableRecord
from connectors.bootstrap.table import Table

__all__ = [
    "Change",
    "Changes",
    "Clients",
    "OpenedTable",
    "ReaderPosition",
    "Table",
    "TableRecord",
    "open_table",
    "resume",
]
