"""What each connector of a worker is to be: its config and its target state, of a file or of the store of REST."""
