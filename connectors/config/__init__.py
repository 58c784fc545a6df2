"""Worker and connector files: what may stand in them, and what it means to clients, engine and people."""
