"""What if a connector had other settings: the page that asks `analyze`, in a process of its own."""
