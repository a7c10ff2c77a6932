"""Images on nodes. The base images are unpacked once into a seed; a new node's store is hard links into it, which takes a
moment, no disk space, and lets all nodes share one page cache. Layers are never written to after they are unpacked."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import List

from . import node
from .errors import TestbedError
from .images import Archive
from .plan import node_name
from .progress import step
from .run import in_parallel, run, succeeds
from .state import Home, cache_dir, locked
from .supervise import ready

# Databases: written to in place, so each node has a copy. All else in a store is written once.
DATABASE_SUFFIX = ".db"
STORE_FORMAT = "1"
CONTAINERD_SECONDS = 20.0


def seed_dir(archives: List[Archive]) -> Path:
    version = run(["containerd", "--version"], attempt="ask containerd for its version")
    key = hashlib.sha256("\n".join([STORE_FORMAT, version, *(a.digest for a in archives)]).encode()).hexdigest()[:12]
    return cache_dir() / "seeds" / key


def prepare(archives: List[Archive]) -> Path:
    """Unpacks archives into a containerd store in the cache, unless it is there."""
    seed = seed_dir(archives)
    if seed.exists():
        return seed
    with locked("seeds"):
        if seed.exists():
            return seed
        seed.parent.mkdir(parents=True, exist_ok=True)
        for old in seed.parent.iterdir():
            shutil.rmtree(old)  # nodes keep what they link to
        with step("unpacking the images once for all nodes"), tempfile.TemporaryDirectory(prefix="mainstay-") as run_dir:
            partial = seed.with_name(f".{seed.name}")
            try:
                _import_all(archives, partial, Path(run_dir))
                partial.rename(seed)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return seed


def _import_all(archives: List[Archive], root: Path, run_dir: Path) -> None:
    """Runs a containerd without any node around it, in mount and network namespaces of its own."""
    socket = run_dir / "containerd.sock"
    config, log = run_dir / "config.toml", run_dir / "log"
    config.write_text(f'version = 2\nroot = "{root}"\nstate = "{run_dir}/state"\n'
                      f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\n  address = "{socket}"\n')
    with open(log, "wb") as out:
        containerd = subprocess.Popen(
            # It ends with this command, however that ends.
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
             "--mount-proc", "containerd", "--config", str(config)], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + CONTAINERD_SECONDS
        while not ready(f"unix:{socket}"):
            if containerd.poll() is not None or time.monotonic() > deadline:
                raise TestbedError(f"failed to start containerd: {log.read_text().strip().splitlines()[-1:]}")
            time.sleep(0.05)
        for archive in archives:
            run([*_ctr(str(socket)), "images", "import", archive.path], attempt=f"unpack {archive.path.name}")
    finally:
        containerd.send_signal(signal.SIGKILL)
        containerd.wait()


def _ctr(socket: str) -> List[str]:
    return ["ctr", "--address", socket, "--namespace", "k8s.io"]


def plant(seed: Path, store: Path) -> None:
    """Gives a node that has no store yet the seed's content."""
    if store.exists() and any(store.iterdir()):
        return
    store.parent.mkdir(parents=True, exist_ok=True)
    partial = store.with_name(store.name + ".new")
    shutil.rmtree(partial, ignore_errors=True)
    if store.exists():
        store.rmdir()
    # Links where they are possible: the cache and the state are usually on one disk.
    if not succeeds(["cp", "-a", "--link", str(seed), str(partial)]):
        shutil.rmtree(partial, ignore_errors=True)
        run(["cp", "-a", seed, partial], attempt=f"copy the images to {store}")
    for database in partial.rglob(f"*{DATABASE_SUFFIX}"):
        if database.stat().st_nlink > 1 and "/fs/" not in str(database):
            copy = database.with_name(database.name + ".copy")
            shutil.copy2(database, copy)
            os.replace(copy, database)
    partial.rename(store)


def load(home: Home, numbers: List[int], archive: Path) -> None:
    """Imports an archive into running nodes, all at once."""
    if not archive.is_file():
        raise TestbedError(f"there is no image archive {archive}: give the path of a tar that 'testbed images' or "
                           "'docker save' wrote")
    with step(f"loading {archive.name} into {', '.join(map(node_name, numbers))}"):
        in_parallel(lambda n=n: node.inside(home, n, [*_ctr(node.CONTAINERD_SOCKET), "images", "import", archive.resolve()],
                                            f"load {archive.name} into {node_name(n)}") for n in numbers)


def wait_for_containerd(home: Home, number: int) -> None:
    """Waits until a node's containerd answers."""
    deadline = time.monotonic() + CONTAINERD_SECONDS
    while not succeeds(node.enter(home, number) + [*_ctr(node.CONTAINERD_SOCKET), "version"]):
        if time.monotonic() > deadline:
            raise TestbedError(f"the containerd of {node_name(number)} does not answer: look at "
                               f"{home.logs}/{node_name(number)}-containerd.log")
        time.sleep(0.1)
