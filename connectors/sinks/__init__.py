"""Where folded records go: the changelog topic and the dead letter topic."""
