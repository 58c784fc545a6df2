"""The endpoints of the REST interface: a module with a router for each part of Kafka Connect's API."""
