"""Processes that outlive the command that starts them, each known by its process id and start time."""

import os
import subprocess
import time
from pathlib import Path
from typing import List, Optional

from .cgroups import Group
from .errors import TestbedError
from .state import write_atomically


def start_time(pid: int) -> Optional[str]:
    """When a live process started, in clock ticks since boot; with the pid it names a process for good."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] == "Z" else fields[19]


def record(file: Path, pid: int) -> None:
    started = start_time(pid)
    if started is None:
        raise TestbedError(f"failed to start {file.stem}: it ended at once; look at the logs in {file.parent}")
    write_atomically(file, f"{pid} {started}\n")


def recorded(file: Path) -> Optional[int]:
    """The recorded process if it still lives."""
    try:
        pid, started = file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if start_time(int(pid)) == started else None


def start_in(group: Group, argv: List[str], log: Path) -> int:
    """Starts a detached process that is in its control group before it does anything."""
    enter = 'for procs in "$@"; do shift; [ "$procs" = -- ] && break; echo 0 >"$procs"; done; exec "$@"'
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as out:
        child = subprocess.Popen(["sh", "-c", enter, "start", *group.procs_files(), "--", *map(str, argv)],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/")
    # Its end is no concern of this command; without this, Python would warn about it when it exits.
    child.returncode = 0
    return child.pid


def only_child(parent: int, patience: float = 10.0) -> int:
    """The process id of the one child of a process, as soon as there is one."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            break
        if children:
            return int(children[0])
        time.sleep(0.005)
    raise TestbedError(f"failed to start a node: process {parent} made no child; look at the node's log")


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
