"""Sets damaged logs aside and lets the others go on."""
