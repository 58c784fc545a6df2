"""A volume of a Kubernetes ConfigMap, changed in the steps in which the kubelet does it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


class ConfigMapVolume:
    """The folder of a volume: each file is a link to ..data/NAME, and ..data one to a folder that a time names."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        self._written = 0
        self.write(files)

    def write(self, files: Mapping[str, str]) -> None:
        """Makes `files` the whole content: in a new folder, which takes the place of the one before in one step."""
        before = (self.folder / "..data").resolve()
        self._written += 1
        now = self.folder / f"..2026_11_21_02_30_00.{self._written:010}"
        now.mkdir()
        for name, text in files.items():
            (now / name).write_text(text, encoding="utf-8")
        (self.folder / "..data_tmp").symlink_to(now.name)
        (self.folder / "..data_tmp").replace(self.folder / "..data")
        links = {path.name for path in self.folder.iterdir() if path.is_symlink() and not path.name.startswith("..")}
        for name in files.keys() - links:
            (self.folder / name).symlink_to(f"..data/{name}")
        for name in links - files.keys():
            (self.folder / name).unlink()
        if self._written > 1:
            shutil.rmtree(before)
