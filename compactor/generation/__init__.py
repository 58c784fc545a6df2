"""Changes the offset from which a log goes on, as an operator asks: a stated gap, or a new generation (G1 to G4)."""
