"""Container images as tar archives, the same bytes for the same content. Pure but for reading and writing files."""

import hashlib
import io
import json
import os
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Callable, Dict, Iterable, List, Optional, Tuple

SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class File:
    """A file, folder or link of a layer that is not copied from a folder."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    owner: int = 0
    kind: str = "file"  # file, folder, link (content is the target), hard (content is the other path)


@dataclass(frozen=True)
class Layer:
    """A layer's tar on disk and its digest."""

    path: Path
    digest: str


@dataclass
class Image:
    """Names and configuration over layers."""

    names: List[str]
    layers: List[Layer]
    entrypoint: List[str] = field(default_factory=list)
    command: List[str] = field(default_factory=list)
    user: str = ""
    env: List[str] = field(default_factory=list)
    labels: Dict[str, str] = field(default_factory=dict)

    def config(self) -> bytes:
        settings: dict = {"Env": [SEARCH_PATH, *self.env]}
        for key, value in (("Entrypoint", self.entrypoint), ("Cmd", self.command), ("User", self.user),
                           ("Labels", self.labels)):
            if value:
                settings[key] = value
        return json.dumps({
            "architecture": "amd64", "os": "linux", "created": EPOCH, "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]},
            "history": [{"created": EPOCH, "created_by": "mainstay testbed"} for _ in self.layers],
        }, sort_keys=True, separators=(",", ":")).encode()


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _entry(name: str, mode: int, owner: int = 0, group: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid, entry.mtime = mode, owner, group, 0
    return entry


def _file_entry(file: File) -> tarfile.TarInfo:
    entry = _entry(file.path.lstrip("/"), file.mode, file.owner, file.owner)
    if file.kind == "folder":
        entry.type = tarfile.DIRTYPE
    elif file.kind in ("link", "hard"):
        entry.type = tarfile.SYMTYPE if file.kind == "link" else tarfile.LNKTYPE
        entry.linkname = file.content.decode()
    else:
        entry.size = len(file.content)
    return entry


def write_layer(target: Path, files: Iterable[File], root: Optional[Path] = None,
                keep: Callable[[PurePosixPath], bool] = lambda path: True) -> Layer:
    """Writes a layer: a folder's content in the order of names, without times and only what `keep` admits, then `files`."""
    partial = target.with_name(target.name + ".new")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        if root is not None:
            for path in _walk(root, keep):
                _copy(tar, root, path)
        for file in files:
            entry = _file_entry(file)
            tar.addfile(entry, io.BytesIO(file.content) if entry.isreg() else None)
    partial.rename(target)
    return Layer(target, sha256(target))


def _walk(root: Path, keep: Callable[[PurePosixPath], bool]) -> Iterable[PurePosixPath]:
    """Every kept path below a folder, a folder before what is in it; what is below a folder left out is left out."""
    def below(folder: PurePosixPath) -> Iterable[PurePosixPath]:
        for name in sorted(os.listdir(root / folder)):
            path = folder / name
            if keep(path):
                yield path
                if stat.S_ISDIR(os.lstat(root / path).st_mode):
                    yield from below(path)

    return below(PurePosixPath(""))


def _copy(tar: tarfile.TarFile, root: Path, path: PurePosixPath) -> None:
    source = root / path
    info = os.lstat(source)
    entry = _entry(str(path), stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
    if stat.S_ISLNK(info.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(source)
        tar.addfile(entry)
    elif stat.S_ISDIR(info.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    elif stat.S_ISREG(info.st_mode):
        entry.size = info.st_size
        with open(source, "rb") as handle:
            tar.addfile(entry, handle)


def write_archive(target: Path, images: List[Image]) -> None:
    """Writes images into one archive that `ctr images import` and `docker load` read; a shared layer is in it once."""
    partial = target.with_name(target.name + ".new")
    manifest, blobs = _manifest(images)
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in blobs:
            entry = _entry(name, 0o644)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for layer in {layer.digest: layer for image in images for layer in image.layers}.values():
            entry = _entry(f"{layer.digest}/layer.tar", 0o644)
            entry.size = layer.path.stat().st_size
            with open(layer.path, "rb") as handle:
                tar.addfile(entry, handle)
        entry = _entry("manifest.json", 0o644)
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    partial.rename(target)


def _manifest(images: List[Image]) -> Tuple[bytes, List[Tuple[str, bytes]]]:
    entries, blobs = [], []
    for image in images:
        config = image.config()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        blobs.append((name, config))
        entries.append({"Config": name, "RepoTags": image.names,
                        "Layers": [f"{layer.digest}/layer.tar" for layer in image.layers]})
    return json.dumps(entries, separators=(",", ":")).encode(), blobs


def archive_names(archive: Path) -> List[str]:
    """The image names in an archive."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile("manifest.json")
        return [name for entry in json.load(member) for name in entry["RepoTags"] or ()] if member else []
