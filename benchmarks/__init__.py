"""Measures keyfold beside its peers (`make bench`): tools in harness, programs in peers, the table's rows in rows."""
