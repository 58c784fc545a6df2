"""What a worker stores of connectors that are made over REST, and which worker may change that."""
