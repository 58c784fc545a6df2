"""Erases keys from what a connector keeps: `keyfold erase`, by steps E1 to E9 of docs/protocol.md.

begin.py      E1  what is kept of the keys, what has to go, what refuses
deletions.py  E1  by which record of the source each value goes, through the connector's chain (delete_events.py)
tombstones.py E2  sends these
run.py        E3 to E9 in their order
search.py     E8  every file that keyfold has, looked through for the keys
receipt.py    what was done; signing.py signs it
verify.py     `keyfold erase verify`
"""
