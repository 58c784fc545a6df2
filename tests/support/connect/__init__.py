"""Kafka Connect itself beside keyfold's REST: requests, the answers of the real worker, and how both are compared."""
