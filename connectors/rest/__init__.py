"""The worker's REST interface: Kafka Connect's endpoints, metrics and health, over a Herder."""
