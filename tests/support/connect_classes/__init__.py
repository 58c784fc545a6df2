"""Our converters, transforms and predicates beside Kafka Connect's own classes: what both answer to the same."""
