"""Object stores that tests talk to: real servers on 127.0.0.1."""
