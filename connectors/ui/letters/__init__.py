"""The page of a connector's dead letters: how many there are of which class, each of them, and their way back.

pages.py       answers requests; waits for the rest on the event loop
reads.py       has a look made on a thread, few at once, and fewer of one connector
looking.py     reads the newest letters and counts them
shown.py       words one letter for a person. Pure
choices.py     reads from a form which letters are meant. Pure
runs.py        has dry runs and redrives made, each on a thread of its own, as deeds
dry_counts.py  counts by class what a dry run has chosen, and tries whether it would be let go again
limits.py      bounds what any of these reads, and ends it when it is to end
"""
