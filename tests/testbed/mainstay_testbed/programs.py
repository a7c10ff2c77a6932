"""The Go programs: built once by version and source, kept in the cache."""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from .errors import TestbedError
from .progress import step
from .run import run
from .state import cache_dir, locked

SOURCES = Path(__file__).resolve().parent.parent / "programs"
GO_VERSION = (1, 26)
KUBERNETES_VERSION = "1.36.3"


@dataclass(frozen=True)
class Program:
    """A module below programs/, the package in it to build (its own by default), and the module that gives its version."""

    name: str
    version_of: str
    minutes: str
    package: str = "."
    variables: Tuple[Tuple[str, str], ...] = ()

    @property
    def source(self) -> Path:
        return SOURCES / self.name


_BASE = "k8s.io/component-base/version"
_CHART = "helm.sh/helm/v3/pkg/chartutil"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")

PROGRAMS: Dict[str, Program] = {program.name: program for program in (
    Program("kubernetes", "k8s.io/kubernetes", "8 min", variables=(
        (f"{_BASE}.gitVersion", f"v{KUBERNETES_VERSION}"), (f"{_BASE}.gitMajor", _MAJOR), (f"{_BASE}.gitMinor", _MINOR))),
    Program("etcd", "go.etcd.io/etcd/server/v3", "1 min"),
    Program("coredns", "github.com/coredns/coredns", "2 min"),
    Program("provisioner", "k8s.io/client-go", "1 min"),
    Program("versitygw", "github.com/versity/versitygw", "2 min", package="github.com/versity/versitygw/cmd/versitygw"),
    Program("helm", "helm.sh/helm/v3", "1 min", package="helm.sh/helm/v3/cmd/helm", variables=(
        (f"{_CHART}.k8sVersionMajor", _MAJOR), (f"{_CHART}.k8sVersionMinor", _MINOR))),
)}


def module_version(go_mod: str, module: str) -> str:
    """The version that a go.mod requires of a module, without the v."""
    match = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+v(\S+)", go_mod, re.MULTILINE)
    if not match:
        raise TestbedError(f"failed to find the version of {module}: its go.mod does not require it")
    return match.group(1)


def source_hash(program: Program) -> str:
    """Changes with anything that goes into the binary and is ours."""
    digest = hashlib.sha256(repr((program.package, program.variables)).encode())
    for file in sorted(program.source.glob("*")):
        if file.name in ("go.mod", "go.sum") or (file.suffix == ".go" and not file.name.endswith("_test.go")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def binary(name: str) -> Path:
    """Where a program is in the cache, built or not."""
    program = PROGRAMS[name]
    version = module_version((program.source / "go.mod").read_text(), program.version_of)
    return cache_dir() / "bin" / f"{name}-{version}-{source_hash(program)}"


def missing(names: Sequence[str] = tuple(PROGRAMS)) -> List[str]:
    return [name for name in names if not binary(name).exists()]


def go() -> str:
    """The Go toolchain; too old a one is an error before anything is built."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    wanted = ".".join(map(str, GO_VERSION))
    if not found:
        raise TestbedError(f"Go is not installed: install Go {wanted} or newer and put it into PATH")
    version = run([found, "env", "GOVERSION"], attempt="ask Go for its version").strip()
    match = re.match(r"go(\d+)\.(\d+)", version)
    if not match or (int(match.group(1)), int(match.group(2))) < GO_VERSION:
        raise TestbedError(f"Go is {version}, too old for Kubernetes {KUBERNETES_VERSION}: install Go {wanted} or newer")
    return found


def build(names: Sequence[str] = tuple(PROGRAMS)) -> None:
    """Builds what the cache lacks, one after another: Go itself uses all cores."""
    if not missing(names):
        return
    with locked("programs"):
        for name in missing(names):
            _build(PROGRAMS[name])


def _build(program: Program) -> None:
    target = binary(program.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    flags = " ".join(["-s", "-w"] + [f"-X {name}={value}" for name, value in program.variables])
    try:
        with step(f"building {target.name} (about {program.minutes} with an empty Go cache, once)"):
            run([go(), "build", "-trimpath", "-mod=readonly", "-ldflags", flags, "-o", partial, program.package],
                attempt=f"build {program.name}", cwd=program.source, env={**os.environ, "CGO_ENABLED": "0"})
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
