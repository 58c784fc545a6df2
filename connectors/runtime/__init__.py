"""The worker: runs connectors, restarts them, answers commands, stops."""
