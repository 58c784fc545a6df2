"""Tests against Apicurio Registry itself, and confluent-kafka's serializers: `make registry`."""
