"""`keyfold demo`: the main job on real input, all below one folder that is made anew each time.

folder.py   the folder: worker file, connector file, broker, store, snapshots
data.py     the flights out of New York in 2013, in order, as records
load.py     from there into a topic
readback.py what is in a topic, as any consumer sees it
query.py    the snapshot, as any reader of Parquet sees it
steps.py    one after the other, timed        report.py   what a person is told at the end
"""
