#!/bin/sh
# What building the image runs, one step a call:
#   install SOURCE TARGET   a virtual environment at TARGET with keyfold and the versions of constraints.txt
#   java                    the Java that Spark needs (Debian)
#   user                    the account that the worker runs as, the folder that it may write to, that of its settings
# STEPS_PIP and STEPS_VENV add options to pip and venv, for a build beside what is installed already.
set -eu

install() {
    # shellcheck disable=SC2086  # both are lists of options
    python3 -m venv ${STEPS_VENV:-} "$2"
    if [ -z "${STEPS_PIP:-}" ]; then
        "$2/bin/python" -m pip install --no-cache-dir --quiet --constraint "$1/constraints.txt" pip setuptools
    fi
    # shellcheck disable=SC2086
    "$2/bin/python" -m pip install --no-cache-dir --quiet --disable-pip-version-check --no-build-isolation \
        ${STEPS_PIP:-} --constraint "$1/constraints.txt" "$1[demo]"
    "$2/bin/keyfold" version
}

java() {
    apt-get update
    # man pages' folder: Debian's Java packages link into it, and slim images lack it
    mkdir -p /usr/share/man/man1
    apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps
    rm -rf /var/lib/apt/lists/*
}

user() {
    groupadd --gid 10001 keyfold
    useradd --uid 10001 --gid 10001 --create-home keyfold
    # the second for COPY --chmod, which gives a folder that it has to make the rights of its files
    mkdir -p /var/lib/keyfold /etc/keyfold
    # group root may write too: OpenShift gives a container a user id that nobody knows, in that group
    chown keyfold:root /var/lib/keyfold
    chmod 0775 /var/lib/keyfold
}

step=$1
shift
"$step" "$@"
