"""The latest value of each key as a Quix Streams program would keep it; runs where quixstreams is installed.

python quix_latest.py BOOTSTRAP SOURCE OUTPUT GROUP STATE-FOLDER
"""

import sys

from quixstreams import Application, State


def latest(value: bytes, state: State) -> bytes:
    """`value`, which is kept from now on: state belongs to the record's key."""
    if value is None:
        state.delete("latest")
    else:
        state.set_bytes("latest", value)
    return value


def main(bootstrap: str, source: str, output: str, group: str, folder: str) -> None:
    """Runs until it is ended."""
    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=folder,
    )
    plain = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
    written = {"key_serializer": "bytes", "value_serializer": "bytes"}
    app.dataframe(app.topic(source, **plain)).apply(latest, stateful=True).to_topic(app.topic(output, **written))
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
