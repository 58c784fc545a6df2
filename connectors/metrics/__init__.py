"""What `/metrics` shows: Kafka Connect's metrics by their usual names, and keyfold's own."""
