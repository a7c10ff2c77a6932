"""Up and down: the whole testbed, from what is there towards what is wanted."""

import shutil
import time
from pathlib import Path
from typing import List, Optional

from . import control, host, hostchanges, images, network, node, pki, programs, seed, storage
from .cgroups import Group
from .errors import TestbedError
from .plan import MAX_NODES, Plan, check_nodes, derived_range, node_name
from .progress import say, step
from .run import in_parallel, run, succeeds
from .state import Home, Settings, boot_id, known_testbeds

READY_SECONDS = 90.0


def up(name: str, nodes: Optional[int], profile: Optional[str], wanted_range: Optional[str]) -> None:
    """Starts what does not run; everything that runs stays as it is."""
    home = Home(name)
    before = home.load()
    settings = _decide(home, before, nodes, profile, wanted_range)
    host.check(settings.nodes)
    host.install_packages()
    programs.build()
    archives = images.build()
    seed_dir = seed.prepare(archives)
    if before and (not before.complete or before.boot != boot_id()):
        say("an earlier start was interrupted, or the machine was restarted since: beginning anew")
        remove(home, before.plan)
    home.save(settings)
    _start(home, settings, seed_dir)
    settings.complete = True
    home.save(settings)


def _decide(home: Home, before: Optional[Settings], nodes: Optional[int], profile: Optional[str],
            wanted_range: Optional[str]) -> Settings:
    """The settings of this start: those of the running testbed, or new ones; a contradiction is an error."""
    if before and before.complete and before.boot == boot_id():
        for what, old, new in (("profile", before.profile, profile), ("range", before.range, wanted_range)):
            if new and new != old:
                raise TestbedError(f"testbed {home.name} runs with {what} {old}: run 'testbed down' before you change it")
        if nodes and nodes < before.nodes:
            raise TestbedError(f"testbed {home.name} has {before.nodes} nodes: run 'testbed down' before you take fewer")
        return Settings(home.name, before.range, check_nodes(nodes or before.nodes), before.profile, boot_id(),
                        complete=True)
    taken = {other.range for other in known_testbeds() if other.name != home.name}
    cidr = wanted_range or (before.range if before else derived_range(home.name, taken))
    plan = Plan.of(home.name, cidr)
    if plan.range in taken:
        raise TestbedError(f"the range {plan.range} belongs to another testbed: give another one with --range")
    _check_range_is_free(plan, before)
    nodes, profile = nodes or (before.nodes if before else 3), profile or (before.profile if before else "fast")
    return Settings(home.name, plan.range, check_nodes(nodes), profile, boot_id())


def _check_range_is_free(plan: Plan, before: Optional[Settings]) -> None:
    if before:
        return
    for line in run(["ip", "-4", "route", "show", "root", plan.range], attempt="look at the routes").splitlines():
        raise TestbedError(f"the range {plan.range} is in use on this machine ({line.strip()}): give another one "
                           "with --range")


def _start(home: Home, settings: Settings, seed_dir: Path) -> None:
    plan, numbers = settings.plan, range(1, settings.nodes + 1)
    with step(f"network {plan.range} and certificates"):
        hostchanges.make()
        home.logs.mkdir(parents=True, exist_ok=True)
        in_parallel([lambda: network.create(plan, settings.nodes), lambda: pki.ensure(home, plan)])
    with step("control plane"):
        control.start(home, settings)
    with step(f"{settings.nodes} nodes"):
        in_parallel(lambda n=n: _start_node(home, settings, n, seed_dir) for n in numbers)
    with step("waiting for the API server"):
        _wait_for_api(home)
        control.kubectl(home, ["apply", "--server-side", "--force-conflicts", "--filename=-"],
                        "apply DNS service and storage classes", input=control.manifests(plan))
    _load_operator_images(home, list(numbers))
    with step("waiting for the nodes"):
        wait_for_nodes(home, [node_name(n) for n in numbers])
        _wait_for_first_pod(home)
    say(f"{settings.nodes} nodes are ready")


def _start_node(home: Home, settings: Settings, number: int, seed_dir: Path) -> None:
    seed.plant(seed_dir, home.node(node_name(number)) / node.FOLDERS["/var/lib/containerd"])
    node.start(home, settings, number)


def _load_operator_images(home: Home, numbers: List[int]) -> None:
    archives = images.operator_archives()
    if archives:
        in_parallel(lambda n=n: seed.wait_for_containerd(home, n) for n in numbers)
        for archive in reversed(archives):
            seed.load(home, numbers, archive.path)


def _wait_for_api(home: Home) -> None:
    _wait(lambda: succeeds([programs.binary("kubernetes"), "kubectl", f"--kubeconfig={home.kubeconfig}", "get", "--raw",
                            "/readyz"]), f"the API server does not become ready: look at {home.logs}/kube-apiserver.log")


def wait_for_nodes(home: Home, names: List[str]) -> None:
    def all_ready() -> bool:
        return set(names) <= set(ready_nodes(home))

    _wait(all_ready, f"not all nodes become Ready: look at the kubelet logs in {home.logs}")


def _wait_for_first_pod(home: Home) -> None:
    """A fresh cluster refuses pods until the controllers have made the namespace's service account."""
    _wait(lambda: succeeds([programs.binary("kubernetes"), "kubectl", f"--kubeconfig={home.kubeconfig}", "get",
                            "serviceaccount/default", "--namespace=default"]),
          f"the controller manager makes no service accounts: look at {home.logs}/kube-controller-manager.log")


def ready_nodes(home: Home) -> List[str]:
    """Names of the nodes whose condition Ready is True."""
    path = '{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    lines = control.kubectl(home, ["get", "nodes", f"--output=jsonpath={path}", "--request-timeout=5s"], "list the nodes")
    return [line.split()[0] for line in lines.splitlines() if line.endswith(" True")]


def _wait(condition, otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"{otherwise}; gave up after {READY_SECONDS:.0f} s")
        time.sleep(0.2)


def down(name: str) -> None:
    """Removes everything of a testbed, whatever state it is in."""
    home = Home(name)
    settings = home.load()
    if settings is None and not home.path.exists():
        say(f"there is no testbed named {name}")
        return
    with step(f"removing testbed {name}"):
        remove(home, settings.plan if settings else Plan.of(name, derived_range(name, set())))
    say("nothing of it is left")


def remove(home: Home, plan: Plan) -> None:
    parts = [Group(f"{plan.cgroup}/{part}") for part in
             (*map(node_name, range(1, MAX_NODES + 1)), control.CONTROL, control.SERVICES)]
    in_parallel(lambda g=g: g.kill() for g in parts if g.exists())
    network.remove(plan, MAX_NODES)
    storage.detach_leftovers(home)
    own = Group(plan.cgroup)
    own.kill()
    own.remove()
    everyone = Group(str(Path(plan.cgroup).parent))
    others = [other for other in known_testbeds() if other.name != home.name]
    if not others:
        everyone.remove()
        hostchanges.undo()
    shutil.rmtree(home.path)
