"""The programs that are measured, keyfold among them, each as people run it."""
