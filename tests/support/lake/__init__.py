"""What tests of tables run beside keyfold: Iceberg's REST catalog, and engines in an environment of their own."""
