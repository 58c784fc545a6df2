"""The programs that are compared, keyfold among them, each run as its users run it."""
