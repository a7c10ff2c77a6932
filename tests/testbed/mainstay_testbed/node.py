"""A node: containerd, kubelet and kube-proxy in namespaces of their own, which end all at once with its PID 1."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Dict, List

from . import network, nodeinit, processes, storage
from .cgroups import Group, hierarchies
from .control import proxy_arguments
from .errors import TestbedError
from .plan import API_PORT, Plan, node_name, zone
from .programs import binary
from .run import run
from .state import Home, Settings, write_atomically

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
LAUNCHERS = "launchers"  # the group of the processes that wait for the nodes' first processes; see nodeinit
PAUSE_IMAGE = "registry.k8s.io/pause:3.10"

# the usual path → the folder of the node that it is
FOLDERS: Dict[str, str] = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/var/log/pods": "pod-logs",
    "/var/log/containers": "container-logs",
    "/etc/cni/net.d": "cni-config",
}

KUBELET_PROFILE: Dict[str, dict] = {
    "real": {},
    # A lease shorter than the controller manager's patience of 10 s, or healthy nodes would be called NotReady.
    # The kubelet sees at a sync that a volume has grown; that would take it up to 90 s.
    "fast": {"nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "2s", "syncFrequency": "10s",
             "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"}},
}


def group(plan: Plan, number: int) -> Group:
    return Group(f"{plan.cgroup}/{node_name(number)}")


def pid_file(home: Home, number: int) -> Path:
    return home.node(node_name(number)) / "init.pid"


def init_pid(home: Home, number: int) -> "int | None":
    """PID 1 of the node as the host sees it, if the node is on."""
    return processes.recorded(pid_file(home, number))


def start(home: Home, settings: Settings, number: int) -> None:
    """Powers the node on, unless it is on."""
    if init_pid(home, number):
        return
    name, plan = node_name(number), settings.plan
    network.heal(plan, number)  # the cable of a node without power is cut
    own = group(plan, number)
    own.kill()  # leftovers of a node whose start was interrupted
    own.remove()  # a machine that starts has no groups of its former pods; the kubelet would wait for each
    own.create()
    write_configuration(home, settings, number)
    argv = network.in_namespace(plan.node_namespace(number), [
        "unshare", "--mount", "--pid", "--uts", "--cgroup", "--fork", "--kill-child", "--mount-proc",
        "--propagation", "slave", sys.executable, "-I", "-S", nodeinit.__file__, str(home.node(name) / "init.json")])
    parent = processes.start_in(own, argv, home.logs / f"{name}.log")
    processes.record(pid_file(home, number), processes.only_child(parent))
    launchers = Group(f"{plan.cgroup}/{LAUNCHERS}")
    launchers.create()
    launchers.adopt(parent)


def stop(home: Home, plan: Plan, number: int, lose_cache: bool) -> None:
    """Cuts the node's power. With `lose_cache`, what its volumes had not synced is lost too, as in a real power cut:
    the processes are stopped, the file systems shut down, and only then everything is killed."""
    own = group(plan, number)
    pid = init_pid(home, number)
    if pid and lose_cache:
        try:
            own.freeze(patience=2.0)
        except TestbedError:
            pass  # something hangs in the kernel, on a broken disk perhaps; the shutdown below releases it
        storage.shut_down_all(home, node_name(number), pid)
    own.kill()
    pid_file(home, number).unlink(missing_ok=True)


def write_configuration(home: Home, settings: Settings, number: int) -> None:
    name, folder, plan = node_name(number), home.node(node_name(number)), settings.plan
    (folder / FOLDERS["/etc/cni/net.d"]).mkdir(parents=True, exist_ok=True)
    home.volumes(name).mkdir(parents=True, exist_ok=True)
    files = {
        "cni-config/10-pods.conflist": json.dumps(cni_config(plan, number), indent=1),
        "containerd.toml": containerd_config(),
        "kubelet.json": json.dumps(kubelet_config(home, settings, number), indent=1),
        "resolv.conf": f"nameserver {plan.control}\n",
        "init.json": json.dumps({
            "hostname": name,
            "hierarchies": [{**asdict(h), "mount": str(h.mount)} for h in hierarchies()],
            "folders": {target: str(folder / source) for target, source in FOLDERS.items()},
            "mount_volumes": [str(binary("provisioner")), "mount", str(home.volumes(name))],
            "commands": commands(home, settings, number),
        }, indent=1),
    }
    for file, text in files.items():
        write_atomically(folder / file, text)


def cni_config(plan: Plan, number: int) -> dict:
    """One cable from each pod to the node, which routes; a bridge would need netfilter on it for services to work."""
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "ptp", "ipMasq": False, "ipam": {
            "type": "host-local", "dataDir": "/var/lib/cni/networks", "ranges": [[{"subnet": plan.node_pods(number)}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}}]}


def containerd_config() -> str:
    return f"""version = 2
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def kubelet_config(home: Home, settings: Settings, number: int) -> dict:
    plan, pki = settings.plan, home.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": False, "cgroupDriver": "cgroupfs", "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "address": plan.node_address(number),
        "clusterDNS": [plan.dns_service], "clusterDomain": "cluster.local",
        "resolvConf": str(home.node(node_name(number)) / "resolv.conf"),
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": f"{pki}/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/{node_name(number)}.crt", "tlsPrivateKeyFile": f"{pki}/{node_name(number)}.key",
        # The disk is the host's: a node must not evict pods because another program filled it.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        **KUBELET_PROFILE[settings.profile],
    }


def commands(home: Home, settings: Settings, number: int) -> List[dict]:
    name, plan, folder = node_name(number), settings.plan, home.node(node_name(number))

    def command(program: str, argv: List[object], after: str) -> dict:
        return {"name": program, "argv": [str(a) for a in argv], "log": str(home.logs / f"{name}-{program}.log"),
                "after": after}

    api_up = f"tcp:{plan.control}:{API_PORT}"
    labels = f"topology.kubernetes.io/zone={zone(number)},topology.kubernetes.io/region=testbed"
    return [
        command("containerd", ["containerd", "--config", folder / "containerd.toml"], ""),
        command("kubelet", [binary("kubernetes"), "kubelet", f"--config={folder / 'kubelet.json'}",
                            f"--kubeconfig={home.file(name + '.kubeconfig')}", f"--hostname-override={name}",
                            f"--node-ip={plan.node_address(number)}", f"--node-labels={labels}"],
                f"unix:{CONTAINERD_SOCKET}"),
        command("kube-proxy", proxy_arguments(home.file("proxy.kubeconfig"), name, plan), api_up),
    ]


def inside(home: Home, number: int, argv: List[object], attempt: str, input: "str | None" = None) -> str:
    """Runs a program in the node's namespaces; the node must be on."""
    return run(enter(home, number) + [str(a) for a in argv], attempt=attempt, input=input)


def enter(home: Home, number: int) -> List[str]:
    pid = init_pid(home, number)
    if pid is None:
        raise TestbedError(f"{node_name(number)} is powered off: run 'testbed power-on {node_name(number)}' first")
    return ["nsenter", "--target", str(pid), "--mount", "--uts", "--net", "--pid", "--cgroup", "--"]
