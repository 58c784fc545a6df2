"""The engine: folds logs by key with Spark and Arrow; knows no Kafka, no settings, no clock."""
