"""How programs are started, timed and written down."""
