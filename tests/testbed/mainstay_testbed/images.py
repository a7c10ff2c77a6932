"""The images of the testbed: MySQL in three tags, the pause image, and the operator's from a binary."""

import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import List, Optional

from .errors import TestbedError
from .image import File, Image, Layer, archive_names, sha256, write_archive, write_layer
from .node import PAUSE_IMAGE
from .progress import say, step
from .run import run
from .state import cache_dir, locked, write_atomically

SOURCES = Path(__file__).resolve().parent.parent / "images"
MYSQL_REPOSITORY = "docker.io/library/mysql"
MYSQL_VERSION = "9.7.4"
MYSQL_SUITE = "sid"  # the Debian suite that has this MySQL
MYSQL_PACKAGES = "mysql-server-core,mysql-client-core,ca-certificates,tzdata"
MYSQL_USER = 999
OPERATOR_USER = "65532:65532"
OPERATOR_PATH = "usr/local/bin/mainstay"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
KEPT_OPERATOR_IMAGES = 3

# What a database server in a container never reads. Folders leave with all that is in them.
LEFT_OUT = (
    r"(dev|proc|sys|tmp|run)/.+", r"etc/(passwd|group|shadow|gshadow)-?",
    r"var/(cache|log|tmp|lib/apt|lib/dpkg|lib/systemd)/.+",
    r"usr/share/(doc|man|locale|info"
    r"|lintian|perl|perl5|bash-completion|gcc|gdb|common-licenses|keyrings|debconf|pixmaps|menu|bug)", r"usr/lib/apt",
    r"usr/lib/x86_64-linux-gnu/(perl.*|libperl.*|libapt.*|libdb-5.*|gconv/(?!UTF|UNICODE|ISO8859-1\.|gconv-modules).+)",
    r"usr/bin/(perl.*|apt.*|dpkg.*|debconf.*|sqv|zipdetails|localedef|mysql_migrate_keyring|perror|myisam.*|mysqlshow"
    r"|mysqlimport|mysqlcheck|mysql_secure_installation|mysql_config_editor|my_print_defaults|ibd2sdi|innochecksum"
    r"|mysqld_multi|mysqld_safe|mysqldumpslow|lsblk|lscpu|cpan|corelist|json_pp|prove|pod.*|ptar.*|enc2xs|h2ph|h2xs"
    r"|libnetcfg|perlbug|perlthanks|piconv|pl2pm|splain|streamzip|xsubpp|instmodsh|encguess)",
    r"usr/sbin/(mkfs.*|fsck.*|mkswap|e2.*|tune2fs|sgdisk|dpkg.*)", r"usr/share/mysql/mysql-test.*",
    r"usr/lib/mysql/plugin/(libpluginmecab\.so|adt_null\.so)",
)
_LEFT_OUT = re.compile("|".join(f"(?:{pattern})" for pattern in LEFT_OUT))


def images_dir() -> Path:
    return cache_dir() / "images"


@dataclass(frozen=True)
class Archive:
    """An image archive in the cache, with the digest that its content is known by."""

    path: Path

    @property
    def digest(self) -> str:
        """The content's digest, kept beside the archive so that a start does not read hundreds of megabytes."""
        note = self.path.with_suffix(".sha256")
        if not note.exists():
            write_atomically(note, sha256(self.path) + "\n")
        return note.read_text().strip()

    def names(self) -> List[str]:
        return archive_names(self.path)


def _recipe(*parts: object) -> str:
    """Eight digits that change with a recipe: this package's image code, the sources and the constants in use."""
    digest = hashlib.sha256(repr(parts).encode())
    for file in sorted(SOURCES.rglob("*")):
        if file.is_file():
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:8]


def mysql_archive() -> Archive:
    recipe = _recipe("mysql", MYSQL_VERSION, MYSQL_SUITE, MYSQL_PACKAGES, MYSQL_USER, LEFT_OUT)
    return Archive(images_dir() / f"mysql-{MYSQL_VERSION}-{recipe}.tar")


def pause_archive() -> Archive:
    return Archive(images_dir() / f"pause-{PAUSE_IMAGE.rpartition(':')[2]}-{_recipe('pause')}.tar")


def base_archives() -> List[Archive]:
    """What every node has from its first second on."""
    return [pause_archive(), mysql_archive()]


def operator_archives() -> List[Archive]:
    """The operator images built here, the newest first."""
    found = sorted((images_dir() / "operator").glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [Archive(path) for path in found]


def build(again: bool = False) -> List[Archive]:
    """Builds the base images that are missing, or all of them again."""
    wanted = base_archives()
    if again:
        for archive in wanted:
            archive.path.unlink(missing_ok=True)
            archive.path.with_suffix(".sha256").unlink(missing_ok=True)
    if all(archive.path.exists() for archive in wanted):
        return wanted
    images_dir().mkdir(parents=True, exist_ok=True)
    with locked("images"), tempfile.TemporaryDirectory(dir=images_dir(), prefix=".build-") as folder:
        if not wanted[0].path.exists():
            _build_pause(wanted[0].path, Path(folder))
        if not wanted[1].path.exists():
            _build_mysql(wanted[1].path, Path(folder))
        for archive in wanted:
            say(f"{', '.join(archive.names())}: {archive.path.stat().st_size >> 20} MiB")
    return wanted


def _build_pause(target: Path, folder: Path) -> None:
    binary = folder / "pause"
    with step("building the pause image"):
        run(["gcc", "-static", "-Os", "-s", "-o", binary, SOURCES / "pause" / "pause.c"], attempt="compile pause")
        layer = write_layer(folder / "pause-layer.tar", [File("pause", binary.read_bytes(), 0o755)])
        write_archive(target, [Image([PAUSE_IMAGE], [layer], entrypoint=["/pause"], user="65535:65535")])


def _build_mysql(target: Path, folder: Path) -> None:
    root = folder / "rootfs"
    with step(f"fetching MySQL from Debian {MYSQL_SUITE} (about a minute, once)"):
        run(["mmdebstrap", "--quiet", "--variant=minbase", "--aptopt=Acquire::Check-Valid-Until \"false\"",
             f"--include={MYSQL_PACKAGES}", MYSQL_SUITE, root, *_debian_mirror()], attempt="fetch MySQL with mmdebstrap")
    with step("packing the MySQL images"):
        version = _mysql_version(root)
        if version != MYSQL_VERSION:
            say(f"  Debian {MYSQL_SUITE} has MySQL {version} by now; the images keep the tag {MYSQL_VERSION} as well")
        base = write_layer(folder / "base.tar", _mysql_additions(root), root, keep_in_mysql_image)
        shim = folder / "version.so"
        run(["gcc", "-shared", "-fPIC", "-O2", "-s", "-o", shim, SOURCES / "mysql" / "version.c"],
            attempt="compile the version shim")
        images = [_mysql_image(version, "", [base])]
        for suffix, extra in (("next", [File("usr/libexec/mysqld-version.so", shim.read_bytes(), 0o755)]), ("broken", [])):
            script = (SOURCES / "mysql" / f"mysqld-{suffix}").read_text().replace("@VERSION@", f"{version}-{suffix}")
            layer = write_layer(folder / f"{suffix}.tar", [File("usr/sbin/mysqld", script.encode(), 0o755), *extra])
            images.append(_mysql_image(version, f"-{suffix}", [base, layer]))
        write_archive(target, images)
    with step("removing the build folder"):
        shutil.rmtree(root)


def _debian_mirror() -> List[str]:
    """The mirror that this machine's apt uses for Debian itself, if that can be told; else mmdebstrap's own choice."""
    lines = run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(SITE) $(REPO_URI)",
                 "Created-By: Packages"], attempt="ask apt for its mirrors").splitlines()
    for line in lines:
        origin, component, *_, uri = line.split()
        if origin == "Debian" and component == "main" and "security" not in uri:
            return [uri]
    return []


def _mysql_version(root: Path) -> str:
    said = run(["chroot", root, "/usr/sbin/mysqld", "--version"], attempt="ask mysqld for its version")
    match = re.search(r"Ver (\d+\.\d+\.\d+)", said)
    if not match:
        raise TestbedError(f"failed to read the version of mysqld: it said {said.strip()!r}")
    return match.group(1)


def keep_in_mysql_image(path: PurePosixPath) -> bool:
    return not _LEFT_OUT.fullmatch(str(path))


def _mysql_additions(root: Path) -> List[File]:
    """What a stock MySQL image has and Debian's packages leave to their scripts: the user and the folders."""
    def with_line(file: str, line: str) -> File:
        return File(file, (root / file).read_bytes() + f"{line}\n".encode(), 0o644)

    def folder(path: str, mode: int) -> File:
        return File(path, mode=mode, owner=MYSQL_USER, kind="folder")

    return [
        with_line("etc/passwd", f"mysql:x:{MYSQL_USER}:{MYSQL_USER}::/var/lib/mysql:/bin/false"),
        with_line("etc/group", f"mysql:x:{MYSQL_USER}:"),
        folder("var/lib/mysql", 0o755), folder("var/lib/mysql-files", 0o750), folder("run/mysqld", 0o755),
        # A second name for the server, which the layers of the other tags do not hide.
        File("usr/libexec/mysqld", b"usr/sbin/mysqld", 0o755, kind="hard"),
    ]


def _mysql_image(version: str, suffix: str, layers: List[Layer]) -> Image:
    tags = dict.fromkeys((version, MYSQL_VERSION))
    return Image([f"{MYSQL_REPOSITORY}:{tag}{suffix}" for tag in tags], layers, command=["mysqld"],
                 env=[f"MYSQL_VERSION={version}{suffix}"])


def build_operator(binary: Path, name: str, output: Optional[Path] = None) -> Archive:
    """Packs a static binary as the operator image; the same binary gives the same bytes."""
    if not re.match(r"^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*:[A-Za-z0-9_.-]+$", name):
        raise TestbedError(f"the image name {name!r} is not complete: give NAME:TAG, for example mainstay.dev/mainstay:dev")
    if not binary.is_file():
        raise TestbedError(f"there is no binary {binary}: build it first")
    if not CERTIFICATES.is_file():
        raise TestbedError(f"{CERTIFICATES} is missing: install the package ca-certificates")
    target = output or images_dir() / "operator" / (re.sub(r"[^A-Za-z0-9.-]+", "_", name) + ".tar")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
        layer = write_layer(Path(folder) / "layer.tar", [
            File("etc/ssl/certs/ca-certificates.crt", CERTIFICATES.read_bytes()),
            File("etc/passwd", b"root:x:0:0:root:/:/sbin/nologin\nmainstay:x:65532:65532::/:/sbin/nologin\n"),
            File("etc/group", b"root:x:0:\nmainstay:x:65532:\n"),
            File("tmp", mode=0o1777, kind="folder"),
            File(OPERATOR_PATH, _stripped(binary, Path(folder)), 0o755)])
        write_archive(target, [Image([full_name(name)], [layer], entrypoint=[f"/{OPERATOR_PATH}"], user=OPERATOR_USER)])
    target.with_suffix(".sha256").unlink(missing_ok=True)
    if output is None:
        for old in operator_archives()[KEPT_OPERATOR_IMAGES:]:
            old.path.unlink(missing_ok=True)
            old.path.with_suffix(".sha256").unlink(missing_ok=True)
    return Archive(target)


def _stripped(binary: Path, folder: Path) -> bytes:
    """A binary without what only debuggers read: of a development build that is more than half of it, and each pod's init
    container copies it. Names of functions stay, for the backtraces of panics."""
    stripped = folder / "stripped"
    run(["strip", "--strip-debug", "-o", stripped, binary], attempt=f"strip {binary}")
    return stripped.read_bytes()


def full_name(name: str) -> str:
    """The name under which a kubelet looks for an image: with a registry."""
    first = name.split("/")[0]
    if "/" not in name:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"
