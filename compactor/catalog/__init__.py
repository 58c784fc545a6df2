"""The versioned truth of one connector on its storage: commits, ownership, requests."""
