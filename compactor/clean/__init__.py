"""The cleaner: decides which logs are due, and compacts, merges and retains them."""
