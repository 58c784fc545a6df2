"""Connect's data model: schemas, values, and a record that is looked into."""
