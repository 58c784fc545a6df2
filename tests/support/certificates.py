"""Certificates of a test's own, for TLS to 127.0.0.1."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a key and a certificate that it has signed itself (PEM), and returns their files."""
    key, made = folder / f"{name}.key", folder / f"{name}.pem"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(made)]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(["openssl", "req", *kind, *subject, *files], check=True, capture_output=True)
    return key, made
