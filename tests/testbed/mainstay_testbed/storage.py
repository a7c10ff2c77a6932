"""Volumes from the testbed's side: what a power cut and a broken disk do to them. Making and growing them is the
provisioner's (programs/provisioner)."""

import json
import time
from pathlib import Path
from typing import List

from .errors import TestbedError
from .run import in_parallel, run, succeeds
from .state import Home


def _mounted(volumes: Path, pid: int) -> List[str]:
    """Mount points of a node's volumes, as the node sees them."""
    prefix = f"{volumes}/"
    lines = Path(f"/proc/{pid}/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(prefix)]


def _in_mounts_of(pid: int, argv: List[str]) -> List[str]:
    return ["nsenter", "--target", str(pid), "--mount", "--pid", "--", *argv]


def shut_down_all(home: Home, node: str, pid: int) -> None:
    """Every volume of the node loses what was not synced, and answers nothing more."""
    in_parallel(lambda m=m: _shut_down(m, pid) for m in _mounted(home.volumes(node), pid))


def _shut_down(mount_point: str, pid: int) -> None:
    run(_in_mounts_of(pid, ["xfs_io", "-x", "-c", "shutdown", mount_point]), attempt=f"shut down {mount_point}")


def break_disk(home: Home, node: str, pid: int, volume: str) -> None:
    """From now on every access to the volume is an I/O error, until `repair_disk`."""
    _shut_down(_find(home, node, pid, volume), pid)


def repair_disk(home: Home, node: str, pid: int, volume: str) -> None:
    """Mounts the file system of a broken volume again, with log recovery. Its pods must be gone: they hold the old one.
    One that ended half way goes on here: the broken file system is unmounted, and not yet mounted again."""
    mount_point = str(home.volumes(node) / volume)
    image = f"{mount_point}.img"
    if not Path(image).exists():
        raise _no_volume(node, volume)
    if _is_mounted(home, node, pid, mount_point):
        holders = [line.split()[1] for line in Path(f"/proc/{pid}/mounts").read_text().splitlines()
                   if line.split()[0] == _device(mount_point, pid) and line.split()[1] != mount_point]
        if holders:
            raise TestbedError(f"failed to repair {volume}: a pod still has it mounted ({holders[0]}): delete the pod, "
                               "wait until it is gone, and repair again")
        run(_in_mounts_of(pid, ["umount", mount_point]), attempt=f"unmount the broken {volume}")
    run(_in_mounts_of(pid, ["mount", "-t", "xfs", "-o", "loop,noatime", image, mount_point]),
        attempt=f"mount {volume} again")


def _device(mount_point: str, pid: int) -> str:
    return next(line.split()[0] for line in Path(f"/proc/{pid}/mounts").read_text().splitlines()
                if line.split()[1] == mount_point)


def _find(home: Home, node: str, pid: int, volume: str) -> str:
    mount_point = str(home.volumes(node) / volume)
    if not _is_mounted(home, node, pid, mount_point):
        raise _no_volume(node, volume)
    return mount_point


def _is_mounted(home: Home, node: str, pid: int, mount_point: str) -> bool:
    """The kernel's table can be read without an entry when others mount and unmount meanwhile, as kubelets do with pods
    that come and go: absent is what is absent several times."""
    for _ in range(5):
        if mount_point in _mounted(home.volumes(node), pid):
            return True
        time.sleep(0.1)
    return False


def _no_volume(node: str, volume: str) -> TestbedError:
    return TestbedError(f"{node} has no volume {volume}: 'testbed kubectl get pv' lists the volumes and nodes")


def detach_leftovers(home: Home) -> None:
    """Frees loop devices whose file belongs to this testbed; after a clean end there are none."""
    listed = run(["losetup", "--json", "--list", "--output", "NAME,BACK-FILE"], attempt="list the loop devices")
    for device in json.loads(listed or '{"loopdevices": []}')["loopdevices"]:
        if (device["back-file"] or "").startswith(f"{home.path}/"):
            succeeds(["losetup", "--detach", device["name"]])
