"""The worker: all that deals with Kafka, settings files or a person; imports compactor, never the reverse."""
