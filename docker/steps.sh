#!/bin/sh
# What building the image runs, one step a call:
#   install SOURCE TARGET   a virtual environment at TARGET with keyfold and the versions of constraints.txt
#   slim TARGET             takes out of it what no worker runs: 340 MB
#   java TARGET             a Java at TARGET of the modules that Spark needs, made from Debian's
#   tools                   what Spark's scripts call besides
#   user                    the account that the worker runs as, the folder that it may write to, that of its settings
# STEPS_PIP and STEPS_VENV add options to pip and venv, for a build beside what is installed already; STEPS_JAVA names
# a JDK that is there already.
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

# A name that is there no more ends the build: rm has no -f, so that a new version is looked at.
slim() {
    (
        cd "$1"/lib/python3*/site-packages/pyspark/jars
        # states of streaming queries and of shuffle services; keyfold's query has none
        rm rocksdbjni-*
        # machine learning and graphs
        rm spark-mllib* spark-graphx* breeze* spire* cats-kernel* algebra* JTransforms* JLargeArrays* arpack* blas-* lapack-*
        # Hive and its database: Spark's catalog is in memory. hive-storage-api stays, as ORC's reader is linked to it.
        rm spark-hive* hive-beeline* hive-cli* hive-common* hive-exec* hive-jdbc* hive-metastore* hive-serde* \
            hive-service* hive-shims* derby* datanucleus* HikariCP* javax.jdo* jdo-api* libfb303*
        # Scala's and SQL's shells, and the server of Spark Connect
        rm -r spark-repl* scala-compiler* jline* spark-connect* spark-pipelines* connect-repl
        # other systems' code
        rm netty-*-osx-* netty-*-windows-*
    )
    (
        cd "$1"/lib/python3*/site-packages
        rm -r pandas/tests pyarrow/tests pyarrow/include pyspark/examples
        find numpy -depth -type d -name tests -exec rm -r {} +
        # Arrow's server; nothing else is linked with it
        rm pyarrow/libarrow_flight.so* pyarrow/libarrow_python_flight.so* pyarrow/_flight*
        # nothing is installed into an image that is built
        rm -rf pip pip-*.dist-info "$1"/bin/pip*
    )
}

java() {
    jdk=${STEPS_JAVA:-}
    if [ -z "$jdk" ]; then
        apt-get update
        # man pages' folder: Debian's Java packages link into it, and slim images lack it
        mkdir -p /usr/share/man/man1
        apt-get install --yes --no-install-recommends openjdk-17-jdk-headless
        jdk=$(echo /usr/lib/jvm/java-17-openjdk-*)
    fi
    # all of Java SE, and of the JDK: ciphers, logins, DNS, zip files, what Spark and Arrow reach into, metrics, jcmd,
    # and the vectors that Spark adds to every JVM of its own
    "$jdk/bin/jlink" --output "$1" --strip-debug --no-man-pages --no-header-files --compress=2 --add-modules \
java.se,jdk.unsupported,jdk.crypto.ec,jdk.crypto.cryptoki,jdk.security.auth,jdk.security.jgss,jdk.naming.dns,\
jdk.zipfs,jdk.net,jdk.nio.mapmode,jdk.management,jdk.management.agent,jdk.jfr,jdk.httpserver,jdk.charsets,jdk.jcmd,\
jdk.incubator.vector
    "$1/bin/java" -Xshare:dump > /dev/null
    "$1/bin/java" -version
}

tools() {
    apt-get update
    # ps, and what Java's own library is linked with
    apt-get install --yes --no-install-recommends procps libstdc++6 zlib1g
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
