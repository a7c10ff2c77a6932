"""The control plane: etcd, API server, controller manager and scheduler in their own network namespace, like a node of
its own; and beside them what a cloud gives: DNS, S3, a storage provisioner, and a kube-proxy, through which the API
server reaches webhooks and the host reaches services whichever nodes are off."""

import json
import secrets
import sys
from pathlib import Path
from typing import Dict, List

from . import network, processes, supervise
from .cgroups import Group
from .plan import API_PORT, Plan, node_name
from .programs import binary
from .run import run
from .state import Home, Settings, write_atomically

BUCKETS = ("mainstay", "mainstay-test")
CONTROL, SERVICES = "control", "services"

PROFILE_API: Dict[str, List[str]] = {
    "real": [],
    "fast": ["--default-not-ready-toleration-seconds=5", "--default-unreachable-toleration-seconds=5"],
}
PROFILE_CONTROLLERS: Dict[str, List[str]] = {
    "real": [],
    "fast": ["--node-monitor-grace-period=10s", "--node-monitor-period=2s"],
}


def group(plan: Plan, part: str) -> Group:
    return Group(f"{plan.cgroup}/{part}")


def start(home: Home, settings: Settings) -> None:
    """Starts what does not run of the control plane and of the services beside it."""
    _configure(home, settings.plan)
    for part, commands in ((CONTROL, control_commands(home, settings)), (SERVICES, service_commands(home, settings.plan))):
        start_part(home, settings.plan, part, commands)


def start_part(home: Home, plan: Plan, part: str, commands: List[dict]) -> None:
    pid_file = home.file(f"{part}.pid")
    if processes.recorded(pid_file):
        return
    own = group(plan, part)
    own.kill()  # leftovers of a part whose supervisor died
    own.create()
    file = home.file(f"{part}.json")
    write_atomically(file, json.dumps(commands, indent=1))
    argv = [sys.executable, "-I", "-S", supervise.__file__, str(file)]
    pid = processes.start_in(own, network.in_namespace(plan.control_namespace, argv), home.logs / f"{part}.log")
    processes.record(pid_file, pid)


def stop_part(home: Home, plan: Plan, part: str) -> None:
    """kill -9 of everything in a part."""
    group(plan, part).kill()
    home.file(f"{part}.pid").unlink(missing_ok=True)


def _command(home: Home, name: str, argv: List[object], after: str = "", env: "dict | None" = None) -> dict:
    return {"name": name, "argv": [str(a) for a in argv], "log": str(home.logs / f"{name}.log"), "after": after,
            "env": env or {}}


def control_commands(home: Home, settings: Settings) -> List[dict]:
    """What runs on the machine of the control plane, in the order of start."""
    kubernetes, pki, plan = binary("kubernetes"), home.pki, settings.plan
    api_up = f"tcp:{plan.control}:{API_PORT}"

    def client(name: str) -> List[str]:
        file = home.file(f"{name}.kubeconfig")
        return [f"--{kind}kubeconfig={file}" for kind in ("", "authentication-", "authorization-")]

    return [
        # Without fsync: its disk is the testbed's, and its writes would slow the databases that are measured here.
        _command(home, "etcd", [binary("etcd"), "--name=etcd", f"--data-dir={home.file('etcd')}", "--unsafe-no-fsync",
                                "--listen-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380",
                                "--advertise-client-urls=http://127.0.0.1:2379", "--log-level=warn"]),
        _command(home, "kube-apiserver", [
            kubernetes, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--secure-port={API_PORT}",
            "--bind-address=0.0.0.0", f"--advertise-address={plan.control}", f"--service-cluster-ip-range={plan.services}",
            f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt", "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={pki}/admin.crt", f"--kubelet-client-key={pki}/admin.key",
            f"--kubelet-certificate-authority={pki}/ca.crt", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
            f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--requestheader-client-ca-file={pki}/ca.crt", "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki}/front-proxy.crt", f"--proxy-client-key-file={pki}/front-proxy.key",
            f"--audit-policy-file={home.file('audit-policy.json')}", f"--audit-log-path={home.logs / 'audit.log'}",
            "--audit-log-maxsize=100", "--audit-log-maxbackup=1",
            *PROFILE_API[settings.profile]], after="tcp:127.0.0.1:2379"),
        _command(home, "kube-controller-manager", [
            kubernetes, "kube-controller-manager", *client("controller-manager"), "--leader-elect=false",
            "--bind-address=127.0.0.1", f"--root-ca-file={pki}/ca.crt",
            f"--service-account-private-key-file={pki}/sa.key", "--use-service-account-credentials",
            f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key",
            *PROFILE_CONTROLLERS[settings.profile]], after=api_up),
        _command(home, "kube-scheduler", [
            kubernetes, "kube-scheduler", *client("scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1"],
            after=api_up),
    ]


def proxy_arguments(kubeconfig: Path, hostname: str, plan: Plan) -> List[object]:
    """kube-proxy with its default sync periods; the limits of connection tracking belong to the host and stay."""
    return [binary("kubernetes"), "kube-proxy", f"--kubeconfig={kubeconfig}", f"--hostname-override={hostname}",
            "--proxy-mode=iptables", f"--cluster-cidr={plan.pods}", "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"]


def service_commands(home: Home, plan: Plan) -> List[dict]:
    api_up = f"tcp:{plan.control}:{API_PORT}"
    key = s3_credentials(home)
    return [
        _command(home, "s3", [binary("versitygw"), "--port", f"0.0.0.0:{plan.s3_port}", "--quiet", "posix", home.s3],
                 env={"ROOT_ACCESS_KEY": key["access_key"], "ROOT_SECRET_KEY": key["secret_key"]}),
        _command(home, "coredns", [binary("coredns"), "-conf", home.file("Corefile")], after=api_up),
        # It serves the control plane, which is no node: it borrows the first node's name, since it waits for its own.
        _command(home, "kube-proxy", proxy_arguments(home.file("proxy.kubeconfig"), node_name(1), plan), after=api_up),
        _command(home, "provisioner", [binary("provisioner"), "run", "--kubeconfig", home.file("provisioner.kubeconfig"),
                                       "--nodes", home.file("nodes")], after=api_up),
    ]


def s3_credentials(home: Home) -> Dict[str, str]:
    """Made at the first start, then kept."""
    file = home.file("s3.json")
    if not file.exists():
        write_atomically(file, json.dumps({"access_key": "testbed" + secrets.token_hex(6),
                                           "secret_key": secrets.token_hex(20)}), mode=0o600)
    return json.loads(file.read_text())


# Who wrote what: the API server's own metrics do not count by client. Only writes, only of the operator's account.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:mainstay-system"],
         "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


def _configure(home: Home, plan: Plan) -> None:
    for folder in (home.logs, home.file("nodes"), *(home.s3 / bucket for bucket in BUCKETS)):
        folder.mkdir(parents=True, exist_ok=True)
    home.file("audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
    home.file("Corefile").write_text(f""".:53 {{
  bind {plan.control}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {home.file('coredns.kubeconfig')} {plan.name}
    pods insecure
    ttl 30
  }}
  cache 30 {{
    disable success cluster.local
    disable denial cluster.local
  }}
}}
""")


def manifests(plan: Plan) -> str:
    """What a fresh cluster gets: the DNS service and the storage classes, as one JSON list."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    dns = {"name": "kube-dns", "namespace": "kube-system"}

    def storage_class(name: str, grows: bool, default: bool) -> dict:
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
        return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": name, "annotations": annotations},
                "provisioner": "testbed.mainstay.dev/xfs", "volumeBindingMode": "WaitForFirstConsumer",
                "reclaimPolicy": "Delete", "allowVolumeExpansion": grows}

    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {**dns, "labels": {"k8s-app": "kube-dns"}},
         "spec": {"clusterIP": plan.dns_service, "ports": ports}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
         "metadata": {**dns, "labels": {"kubernetes.io/service-name": "kube-dns"}}, "addressType": "IPv4", "ports": ports,
         "endpoints": [{"addresses": [plan.control], "conditions": {"ready": True}}]},
        storage_class("testbed", grows=True, default=True),
        storage_class("testbed-fixed", grows=False, default=False),
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def kubectl(home: Home, arguments: List[str], attempt: str, input: "str | None" = None) -> str:
    return run([binary("kubernetes"), "kubectl", f"--kubeconfig={home.kubeconfig}", *arguments], attempt=attempt,
               input=input)
