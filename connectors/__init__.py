"""Whatever meets Kafka, files or a person; imports compactor, never the other way round."""
