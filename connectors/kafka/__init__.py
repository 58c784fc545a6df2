"""Kafka: clients and their settings, and a broker to try things on."""
