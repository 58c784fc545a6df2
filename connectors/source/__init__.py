"""The source: Kafka topics as a Spark data source of exact offset ranges."""
