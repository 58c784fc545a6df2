"""Ways to try keyfold out: an embedded broker, the demo."""
