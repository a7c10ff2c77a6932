"""PID 1 of a node. Runs as `python nodeinit.py FILE` inside fresh mount, pid, uts, network and cgroup namespaces: gives
the node folders of its own under the usual paths, mounts its volumes, then supervises containerd, kubelet and kube-proxy.

Standard library only, started without site packages.
"""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import supervise  # noqa: E402


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def private_folders(folders: dict) -> None:
    """Binds the node's own folders over the host's: {"/var/lib/kubelet": "/…/node-1/kubelet"}."""
    for target, source in folders.items():
        os.makedirs(source, exist_ok=True)
        mount("--bind", source, target)
        # A peer group of its own: else all that is mounted below shows up below `source` as well.
        mount("--make-private", target)
        mount("--make-shared", target)
    mount("-t", "tmpfs", "-o", "mode=755,size=256m", "tmpfs", "/run")
    os.makedirs("/run/lock", exist_ok=True)


def own_cgroups(hierarchies: list) -> None:
    """Mounts the control groups anew: seen from the node's cgroup namespace, its own group is the root."""
    root = hierarchies[0]["mount"] if hierarchies[0]["version"] == 2 else os.path.dirname(hierarchies[0]["mount"])
    links = {name: os.readlink(os.path.join(root, name)) for name in os.listdir(root)
             if os.path.islink(os.path.join(root, name))}
    subprocess.run(["umount", "--recursive", root], check=True)
    if hierarchies[0]["version"] == 1:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root)
    for hierarchy in hierarchies:
        os.makedirs(hierarchy["mount"], exist_ok=True)
        if hierarchy["version"] == 2:
            mount("-t", "cgroup2", "cgroup2", hierarchy["mount"])
        else:
            mount("-t", "cgroup", "-o", hierarchy["options"], "cgroup", hierarchy["mount"])
    for name, target in links.items():
        os.symlink(target, os.path.join(root, name))
    if hierarchies[0]["version"] == 2:
        leave_cgroup_root(root)


def leave_cgroup_root(root: str) -> None:
    """v2: a group with controllers for its children holds no process itself. The process outside that started this one
    leaves it too, in a moment; hence the patience."""
    os.makedirs(f"{root}/system", exist_ok=True)
    with open(f"{root}/system/cgroup.procs", "w") as procs:
        procs.write("0")
    with open(f"{root}/cgroup.controllers") as available:
        controllers = available.read().split()
    deadline = time.monotonic() + 5
    for controller in controllers:
        while not delegated(root, controller) and time.monotonic() < deadline:
            time.sleep(0.01)


def delegated(root: str, controller: str) -> bool:
    try:
        with open(f"{root}/cgroup.subtree_control", "w") as control:
            control.write(f"+{controller}")
        return True
    except OSError:
        return False


def main(config: dict) -> None:
    mount("--make-rshared", "/")
    subprocess.run(["hostname", config["hostname"]], check=True)
    own_cgroups(config["hierarchies"])
    private_folders(config["folders"])
    # A volume that cannot be mounted is that volume's problem, not the node's: its pods will say so.
    subprocess.run(config["mount_volumes"])
    supervise.main(config["commands"])


if __name__ == "__main__":
    with open(sys.argv[1]) as handle:
        main(json.load(handle))
