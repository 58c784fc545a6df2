"""A real PostgreSQL, Debezium and Kafka Connect in front of keyfold: `make cdc`."""
