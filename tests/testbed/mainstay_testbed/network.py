"""The testbed's network: one bridge on the host, a namespace for the control plane and one for each node; and cuts in it.

Nothing of the host's own configuration is changed but for the routes into the testbed, which go with the bridge.
"""

import json
from typing import Iterable, List

from .plan import API_PORT, Plan
from .run import run, succeeds

CUT_TABLE = "mainstay_testbed_cut"
KUBELET_PORT = 10250
BRIDGE_FORWARDING, BRIDGE_DISABLED = "3", "0"


def _batch(lines: Iterable[str], attempt: str, namespace: str = "") -> None:
    where = ["-n", namespace] if namespace else []
    run(["ip", "-force", *where, "-batch", "-"], input="\n".join(lines) + "\n", attempt=attempt)


def in_namespace(namespace: str, argv: List[str]) -> List[str]:
    """A command line that runs in a network namespace. Not `ip netns exec`: that mounts /sys anew, which hides cgroups."""
    return ["nsenter", f"--net=/run/netns/{namespace}", *map(str, argv)]


def namespaces() -> List[str]:
    return [entry["name"] for entry in json.loads(run(["ip", "-json", "netns", "list"], attempt="list network namespaces")
                                                  or "[]")]


def create(plan: Plan, nodes: int) -> None:
    """Makes what is missing of bridge, namespaces, links and routes."""
    _bridge(plan)
    existing = namespaces()
    _machine(plan, plan.control_namespace, plan.control_link, plan.control, existing)
    for number in range(1, nodes + 1):
        _machine(plan, plan.node_namespace(number), plan.node_link(number), plan.node_address(number), existing)
    routes = {number: f"route replace {plan.node_pods(number)} via {plan.node_address(number)}"
              for number in range(1, nodes + 1)}
    _batch([*routes.values(), f"route replace {plan.services} via {plan.control}"], "route into the testbed")
    _batch(routes.values(), "route pods for the control plane", plan.control_namespace)
    for number in range(1, nodes + 1):
        _batch([route for other, route in routes.items() if other != number], "route pods between nodes",
               plan.node_namespace(number))


def _bridge(plan: Plan) -> None:
    if not _link_exists(plan.bridge):
        _batch([f"link add {plan.bridge} type bridge", f"addr add {plan.host}/24 dev {plan.bridge}",
                f"link set {plan.bridge} up"], f"make the bridge {plan.bridge}")


def _machine(plan: Plan, namespace: str, link: str, address: str, existing: List[str]) -> None:
    """A namespace with one cable to the bridge."""
    if namespace not in existing:
        run(["ip", "netns", "add", namespace], attempt=f"make the network namespace {namespace}")
    if not _link_exists(link):
        _batch([f"link add {link} type veth peer name eth0 netns {namespace}", f"link set {link} master {plan.bridge} up"],
               f"connect {namespace}")
    _batch(["link set lo up", f"addr replace {address}/24 dev eth0", "link set eth0 up",
            f"route replace default via {plan.host}"], f"configure {namespace}", namespace)
    settings = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter"
    run(in_namespace(namespace, ["sh", "-ec", settings]), attempt=f"let {namespace} forward packets")


def _link_exists(link: str) -> bool:
    return succeeds(["ip", "link", "show", link])


def remove(plan: Plan, most_nodes: int) -> None:
    """Removes all of it; links and routes go with the namespaces and the bridge."""
    ours = {plan.control_namespace, *(plan.node_namespace(n) for n in range(1, most_nodes + 1))}
    links = {plan.control_link, *(plan.node_link(n) for n in range(1, most_nodes + 1))}
    # Links first: a namespace that a dying process still holds would keep its end, and so the name of ours.
    for link in sorted(links):
        if _link_exists(link):
            run(["ip", "link", "del", link], attempt=f"remove the link {link}")
    for namespace in namespaces():
        if namespace in ours:
            run(["ip", "netns", "del", namespace], attempt=f"remove the network namespace {namespace}")
    if _link_exists(plan.bridge):
        run(["ip", "link", "del", plan.bridge], attempt=f"remove the bridge {plan.bridge}")


def cut(plan: Plan, number: int) -> None:
    """Cuts a node from everything, as a dead switch port does: silently, with the link still up at the node."""
    run(["bridge", "link", "set", "dev", plan.node_link(number), "state", BRIDGE_DISABLED],
        attempt=f"cut node {number} from the network")


def cut_api(plan: Plan, number: int) -> None:
    """Cuts node and pods from the API server, and it from the kubelet; whatever else passes that machine goes on.

    The way of clients to Services leads over it, and DNS and S3 live there.
    """
    rules = [f"ip {there} {plan.control} tcp {end} {port} drop"
             for there, end, port in (("daddr", "dport", API_PORT), ("saddr", "sport", API_PORT),
                                         ("saddr", "dport", KUBELET_PORT), ("daddr", "sport", KUBELET_PORT))]
    chains = "".join(f"chain {hook} {{ type filter hook {hook} priority 0; {'; '.join(rules)}; }}\n"
                     for hook in ("input", "output", "forward"))
    _nft(plan, number, f"table inet {CUT_TABLE}\ndelete table inet {CUT_TABLE}\n"
                       f"table inet {CUT_TABLE} {{\n{chains}}}\n", f"cut node {number} from the API server")


def heal(plan: Plan, number: int) -> None:
    """Undoes both kinds of cut."""
    run(["bridge", "link", "set", "dev", plan.node_link(number), "state", BRIDGE_FORWARDING],
        attempt=f"connect node {number} to the network")
    _nft(plan, number, f"table inet {CUT_TABLE}\ndelete table inet {CUT_TABLE}\n", f"heal node {number}")


def _nft(plan: Plan, number: int, script: str, attempt: str) -> None:
    run(in_namespace(plan.node_namespace(number), ["nft", "-f", "-"]), input=script, attempt=attempt)


def cuts(plan: Plan, number: int) -> List[str]:
    """What is cut at a node, in words."""
    if not _link_exists(plan.node_link(number)):
        return ["without a cable: run 'testbed up'"]
    found = []
    link = json.loads(run(["bridge", "-json", "link", "show", "dev", plan.node_link(number)],
                          attempt=f"look at the link of node {number}") or "[]")
    if link and link[0].get("state") != "forwarding":
        found.append("cut")
    if succeeds(in_namespace(plan.node_namespace(number), ["nft", "list", "table", "inet", CUT_TABLE])):
        found.append("cut from the API server")
    return found
