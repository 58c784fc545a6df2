"""Kafka clients, their settings, and their errors as keyfold's."""
