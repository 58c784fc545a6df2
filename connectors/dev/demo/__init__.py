"""`keyfold demo`: the main job on real input, all below one folder, which each run empties first.

folder.py   the folder: worker file, connector file, broker, store, snapshots
data.py     the flights out of New York in 2013, in order, as records
load.py     from there into a topic
steps.py    one after the other, timed, then read back as any consumer does
named_table.py  DuckDB's name of the newest snapshot, and what is asked of it
report.py   what a person reads at the end
"""
