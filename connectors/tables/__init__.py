"""Tables of the latest state in a format that other engines read: Delta and Iceberg (docs/tables.md)."""
