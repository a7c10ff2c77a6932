"""What a testbed changes on the host outside of its own folder, to be undone by the last `down`: limits of the kernel that
three kubelets or some mysqld exceed, and empty folders, over which nodes mount their own."""

import json
from pathlib import Path

from .node import FOLDERS
from .state import testbeds_dir, write_atomically

LIMITS = {"fs/inotify/max_user_instances": 8192, "fs/inotify/max_user_watches": 524288,
          # Each mysqld takes some thousands of the kernel's asynchronous requests, and a testbed is many nodes on one kernel.
          "fs/aio-max-nr": 1048576}


def _note() -> Path:
    return testbeds_dir() / ".host.json"


def _read() -> dict:
    try:
        return json.loads(_note().read_text())
    except FileNotFoundError:
        return {"limits": {}, "folders": []}


def make() -> None:
    """Each change is noted before it is made."""
    changes = _read()
    for key, wanted in LIMITS.items():
        file = Path("/proc/sys") / key
        now = int(file.read_text())
        if now < wanted:
            changes["limits"].setdefault(key, now)
            write_atomically(_note(), json.dumps(changes))
            file.write_text(str(wanted))
    for folder in map(Path, FOLDERS):
        missing = [str(path) for path in (folder, *folder.parents) if not path.exists()]
        if missing:
            changes["folders"] += missing
            write_atomically(_note(), json.dumps(changes))
            folder.mkdir(parents=True)


def undo() -> None:
    changes = _read()
    for key, value in changes["limits"].items():
        (Path("/proc/sys") / key).write_text(str(value))
    for folder in sorted(map(Path, changes["folders"]), key=lambda path: len(path.parts), reverse=True):
        try:
            folder.rmdir()
        except OSError:
            pass  # somebody uses it by now
    _note().unlink(missing_ok=True)
