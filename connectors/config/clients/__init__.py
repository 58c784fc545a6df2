"""Settings of Kafka clients: their names, their translation to librdkafka, who may set them."""
