"""Can this machine carry a testbed? And: the Debian packages that it lacks."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Callable, List, Optional, Tuple

from .errors import TestbedError
from .progress import say, step
from .run import run, succeeds
from .state import cache_dir

# program or file that proves a package is there → package
PACKAGES: Tuple[Tuple[str, str], ...] = (
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("openssl", "openssl"),
    ("mkfs.xfs", "xfsprogs"),
    ("losetup", "mount"),
    ("nsenter", "util-linux"),
    ("mmdebstrap", "mmdebstrap"),
    ("gcc", "gcc"),
    ("/usr/include/stdio.h", "libc6-dev"),
)

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
MEMORY_GIB_BASE, MEMORY_GIB_PER_NODE = 1.0, 0.5
DISK_GIB_BASE, DISK_GIB_PER_NODE = 3.0, 0.7
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000


def extend_path() -> None:
    """Administration programs are not in every user's PATH."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":" + SBIN


def check(nodes: int) -> None:
    """Raises one clear sentence if this machine cannot carry a testbed; changes nothing."""
    for probe in (_root, _linux, _namespaces, _links, _cgroups, _loop_devices, _filesystems,
                  lambda: _memory(nodes), lambda: _disk(nodes)):
        problem = probe()
        if problem:
            raise TestbedError(f"this machine cannot carry a testbed: {problem}")


def _root() -> Optional[str]:
    return None if os.geteuid() == 0 else "it needs root: run the command with sudo"


def _linux() -> Optional[str]:
    if not Path("/proc/self/ns").is_dir():
        return "it needs Linux with /proc mounted"
    return None


def _in_child(action: Callable[[], bool]) -> bool:
    """Tries something in a child process, so that this process keeps its namespaces."""
    child = os.fork()
    if child == 0:
        worked = False
        try:
            worked = action()
        finally:
            os._exit(0 if worked else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _namespaces() -> Optional[str]:
    libc = ctypes.CDLL(None, use_errno=True)
    for name, flag in (("network", CLONE_NEWNET), ("mount", CLONE_NEWNS)):
        if not _in_child(lambda: libc.unshare(flag) == 0):
            return f"it may not make {name} namespaces: give it CAP_SYS_ADMIN (a privileged container, or a real machine)"
    return None


def _links() -> Optional[str]:
    if not shutil.which("ip"):
        return None  # a machine without iproute2 gets it first
    probe = f"tbp{os.getpid()}"
    if not succeeds(["ip", "link", "add", probe, "type", "bridge"]):
        return "it may not make network links: give it CAP_NET_ADMIN (a privileged container, or a real machine)"
    succeeds(["ip", "link", "del", probe])
    return None


def _cgroups() -> Optional[str]:
    mounts = Path("/proc/mounts").read_text()
    if " cgroup " not in mounts and " cgroup2 " not in mounts:
        return "no cgroup hierarchy is mounted: mount one on /sys/fs/cgroup"
    probe = next((Path(line.split()[1]) for line in mounts.splitlines() if line.split()[2] in ("cgroup", "cgroup2")))
    try:
        (probe / "mainstay-testbed-probe").mkdir(exist_ok=True)
        (probe / "mainstay-testbed-probe").rmdir()
    except OSError as error:
        return f"cgroups cannot be made below {probe} ({error.strerror}): mount it writable"
    return None


def _loop_devices() -> Optional[str]:
    if not Path("/dev/loop-control").exists() and not succeeds(["modprobe", "loop"]):
        return "there is no /dev/loop-control: load the kernel module loop"
    if not succeeds(["losetup", "--find"]):
        return "no loop device can be had (losetup --find fails): free one, or give it access to /dev/loop*"
    return None


def _filesystems() -> Optional[str]:
    for kind in ("xfs", "overlay"):
        if f"\t{kind}\n" not in Path("/proc/filesystems").read_text() and not succeeds(["modprobe", kind]):
            return f"the kernel has no {kind}: load the kernel module {kind}"
    return None


def _memory(nodes: int) -> Optional[str]:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) / 2**20
    wanted = MEMORY_GIB_BASE + MEMORY_GIB_PER_NODE * nodes
    if available < wanted:
        return (f"{available:.1f} GiB of memory are free and {nodes} nodes need {wanted:.1f} GiB before any pod runs: "
                "take fewer nodes or stop something")
    return None


def _disk(nodes: int) -> Optional[str]:
    place = cache_dir()
    place.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place).free / 2**30
    wanted = DISK_GIB_BASE + DISK_GIB_PER_NODE * nodes
    if free < wanted:
        return (f"{free:.1f} GiB are free at {place} and {nodes} nodes need {wanted:.1f} GiB: "
                "free some, or set MAINSTAY_CACHE to a folder on a larger disk")
    return None


def missing_packages() -> List[str]:
    def there(proof: str) -> bool:
        return Path(proof).exists() if proof.startswith("/") else shutil.which(proof) is not None

    return [package for proof, package in PACKAGES if not there(proof)]


def install_packages() -> None:
    """Installs what is missing, with one apt-get update before."""
    packages = missing_packages()
    if not packages:
        return
    if not shutil.which("apt-get"):
        raise TestbedError(f"these programs are missing and this is no Debian to install them on: {', '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step("apt-get update"):
        run(["apt-get", "-q", "update"], attempt="update the package lists", env=quiet)
    with step(f"installing {', '.join(packages)}"):
        run(["apt-get", "-q", "install", "-y", "--no-install-recommends", *packages],
            attempt=f"install {', '.join(packages)}", env=quiet)
    _stop_host_containerd()


def _stop_host_containerd() -> None:
    """Debian starts a containerd for the host; the testbed's nodes bring their own and nobody needs a second one."""
    if shutil.which("systemctl") and subprocess.run(["systemctl", "is-active", "-q", "containerd"]).returncode == 0:
        say("stopping the host's own containerd, which came with the package")
        succeeds(["systemctl", "disable", "--now", "containerd"])
