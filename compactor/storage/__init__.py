"""Where bytes are kept: the storage protocol and its implementations."""
