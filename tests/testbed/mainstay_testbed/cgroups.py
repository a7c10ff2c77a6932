"""Control groups: every process of a testbed is in one of its groups, so that it can be frozen, found and ended there.

Both worlds are handled: cgroup v1 (one hierarchy per controller, with or without a `unified` one beside them) and v2.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import List, Set

from .errors import TestbedError

FREEZE_SECONDS = 10.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup hierarchy of the host."""

    mount: Path
    version: int
    options: str  # v1: what `mount -o` wants, e.g. "cpu,cpuacct" or "none,name=systemd"

    @property
    def controllers(self) -> Set[str]:
        return set(self.options.split(","))


_IGNORED_OPTIONS = {"rw", "ro", "relatime", "nosuid", "nodev", "noexec", "xattr", "clone_children", "nsdelegate",
                    "memory_recursiveprot", "memory_hugetlb_accounting", "cpuset_v2_mode", "seclabel"}


def parse_mounts(mounts: str) -> List[Hierarchy]:
    """The cgroup hierarchies in the text of /proc/mounts."""
    found = []
    for line in mounts.splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2":
            found.append(Hierarchy(Path(where), 2, ""))
        elif kind == "cgroup":
            kept = [o for o in options.split(",") if o not in _IGNORED_OPTIONS and not o.startswith("release_agent=")]
            if any(o.startswith("name=") for o in kept):
                kept = ["none"] + [o for o in kept if o != "none"]
            found.append(Hierarchy(Path(where), 1, ",".join(kept)))
    return found


def hierarchies() -> List[Hierarchy]:
    return parse_mounts(Path("/proc/mounts").read_text())


@dataclass(frozen=True)
class Group:
    """A group of the same path in every hierarchy."""

    path: str

    def _folders(self) -> List[Path]:
        return [h.mount / self.path for h in hierarchies()]

    def create(self) -> None:
        for hierarchy in hierarchies():
            folder = hierarchy.mount
            for part in Path(self.path).parts:
                _delegate(hierarchy, folder)
                folder = folder / part
                folder.mkdir(exist_ok=True)
                if "cpuset" in hierarchy.controllers:
                    _copy_cpuset(folder)
                if folder.parent == hierarchy.mount:
                    _weigh(folder)

    def procs_files(self) -> List[str]:
        """What a process writes 0 into to enter the group."""
        return [str(folder / "cgroup.procs") for folder in self._folders()]

    def adopt(self, pid: int) -> None:
        """Moves a process into the group; that it just ended is no error."""
        for procs in self.procs_files():
            try:
                Path(procs).write_text(str(pid))
            except ProcessLookupError:
                return

    def pids(self) -> Set[int]:
        """All processes in the group and below, as this process sees them."""
        found: Set[int] = set()
        for folder in self._folders():
            for procs in folder.rglob("cgroup.procs") if folder.exists() else ():
                try:
                    found.update(int(line) for line in procs.read_text().split() if line != "0")
                except OSError:
                    continue  # the group went away, or it is threaded
        return found

    def exists(self) -> bool:
        return any(folder.exists() for folder in self._folders())

    def _freezer(self) -> "Path | None":
        for hierarchy in hierarchies():
            if "freezer" in hierarchy.controllers:
                return hierarchy.mount / self.path / "freezer.state"
        for hierarchy in hierarchies():
            candidate = hierarchy.mount / self.path / "cgroup.freeze"
            if hierarchy.version == 2 and candidate.exists():
                return candidate
        return None

    def freeze(self, patience: float = FREEZE_SECONDS) -> None:
        """Stops every process at once, without their noticing."""
        freezer = self._freezer()
        if freezer is None:
            _signal_all(self.pids(), signal.SIGSTOP)
            return
        freezer.write_text("FROZEN" if freezer.name == "freezer.state" else "1")
        deadline = time.monotonic() + patience
        while not self._reached_frozen(freezer):
            if time.monotonic() > deadline:
                raise TestbedError(f"failed to freeze {self.path} within {patience:.0f} s: a process of it hangs "
                                   "in the kernel; try again, or 'testbed thaw'")
            time.sleep(0.005)

    @staticmethod
    def _reached_frozen(freezer: Path) -> bool:
        if freezer.name == "freezer.state":
            return freezer.read_text().strip() == "FROZEN"
        return "frozen 1" in (freezer.parent / "cgroup.events").read_text()

    def thaw(self) -> None:
        freezer = self._freezer()
        if freezer is None:
            _signal_all(self.pids(), signal.SIGCONT)
        elif freezer.exists():
            freezer.write_text("THAWED" if freezer.name == "freezer.state" else "0")

    def frozen(self) -> bool:
        freezer = self._freezer()
        if freezer is not None:
            return freezer.exists() and self._reached_frozen(freezer)
        pids = self.pids()
        return bool(pids) and all(_stopped(pid) for pid in pids)

    def kill(self, patience: float = 15.0) -> None:
        """SIGKILL to everything in the group, frozen or not, and waits until all of it is gone."""
        deadline = time.monotonic() + patience
        while True:
            pids = self.pids()
            if not pids:
                return
            _signal_all(pids, signal.SIGKILL)
            self.thaw()
            if time.monotonic() > deadline:
                raise TestbedError(f"failed to end the processes {sorted(pids)} of {self.path}: they hang in the kernel; "
                                   "run the command again in a minute")
            time.sleep(0.02)

    def remove(self) -> None:
        """Removes the empty group with all below it."""
        for folder in self._folders():
            if folder.exists():
                _remove_tree(folder)


def _delegate(hierarchy: Hierarchy, folder: Path) -> None:
    """v2: the children of a group get the controllers that it has."""
    if hierarchy.version != 2:
        return
    controllers = (folder / "cgroup.controllers").read_text().split()
    for controller in controllers:
        try:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            pass  # a controller that cannot be delegated here is done without


# Of a group beside processes of the host: a testbed stands for several machines, and has the weight of as many processes.
_WEIGHTS = (("cpu.shares", "16384"), ("cpu.weight", "1600"))


def _weigh(folder: Path) -> None:
    """Gives a group its share of the processors; with the weight of one compiler it starves beside several."""
    for name, weight in _WEIGHTS:
        if (folder / name).exists():
            (folder / name).write_text(weight)


def _copy_cpuset(folder: Path) -> None:
    """v1: a new cpuset is empty, and an empty one admits no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text().strip())


def _signal_all(pids: Set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def _remove_tree(folder: Path) -> None:
    for child in sorted((p for p in folder.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True):
        _rmdir_patiently(child)
    _rmdir_patiently(folder)


def _rmdir_patiently(folder: Path) -> None:
    """A group whose last process just died can be busy for a moment."""
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
    raise TestbedError(f"failed to remove the control group {folder}: something is still in it; run 'testbed down' again")
