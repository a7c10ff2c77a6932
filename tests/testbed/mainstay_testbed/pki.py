"""Keys, certificates and kubeconfig files of a testbed, made with openssl."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import List

from .plan import MAX_NODES, Plan, node_name
from .run import in_parallel, run
from .state import Home, write_atomically

DAYS = "3650"


@dataclass(frozen=True)
class Certificate:
    """A certificate for a server, a client or both; `file` names it below the pki folder."""

    file: str
    subject: str
    names: str = "DNS:none"


def certificates(plan: Plan) -> List[Certificate]:
    api_names = ",".join([
        "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local", "DNS:localhost",
        f"IP:{plan.api_service}", f"IP:{plan.control}", "IP:127.0.0.1"])
    return [
        Certificate("apiserver", "/CN=kube-apiserver", api_names),
        Certificate("admin", "/O=system:masters/CN=admin"),
        Certificate("controller-manager", "/CN=system:kube-controller-manager"),
        Certificate("scheduler", "/CN=system:kube-scheduler"),
        Certificate("proxy", "/CN=system:kube-proxy"),
        Certificate("coredns", "/O=system:masters/CN=coredns"),
        Certificate("provisioner", "/O=system:masters/CN=provisioner"),
        Certificate("front-proxy", "/CN=front-proxy-client"),
    ] + [
        Certificate(node_name(n), f"/O=system:nodes/CN=system:node:{node_name(n)}",
                    f"DNS:{node_name(n)},IP:{plan.node_address(n)}")
        for n in range(1, MAX_NODES + 1)
    ]


def ensure(home: Home, plan: Plan) -> None:
    """Makes the authority, every certificate and every kubeconfig that is not there yet."""
    pki = home.pki
    pki.mkdir(parents=True, exist_ok=True)
    pki.chmod(0o700)
    if not (pki / "ca.crt").exists():
        _key_pair(["-x509", "-subj", "/CN=testbed-ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign"], pki / "ca")
    if not (pki / "sa.pub").exists():
        run(["openssl", "genrsa", "-out", pki / "sa.key", "2048"], attempt="make the service account key")
        run(["openssl", "rsa", "-in", pki / "sa.key", "-pubout", "-out", pki / "sa.pub"],
            attempt="make the service account key")
    wanted = certificates(plan)
    in_parallel(lambda c=c: _sign(pki, c) for c in wanted if not (pki / f"{c.file}.crt").exists())
    clients = [c.file for c in wanted if c.file not in ("apiserver", "front-proxy")]
    for client in clients:
        target = home.kubeconfig if client == "admin" else home.file(f"{client}.kubeconfig")
        if not target.exists():
            write_atomically(target, kubeconfig(pki, client, plan), mode=0o600)


def _key_pair(options: List[str], stem: Path) -> None:
    """The certificate is renamed last: where it is there, the key is there."""
    run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS,
         "-keyout", f"{stem}.key", "-out", f"{stem}.new", *options], attempt=f"make the certificate {stem.name}")
    Path(f"{stem}.new").rename(f"{stem}.crt")


def _sign(pki: Path, certificate: Certificate) -> None:
    _key_pair(["-x509", "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key"), "-subj", certificate.subject,
               "-addext", f"subjectAltName={certificate.names}",
               "-addext", "extendedKeyUsage=serverAuth,clientAuth",
               "-addext", "basicConstraints=critical,CA:FALSE"], pki / certificate.file)


def kubeconfig(pki: Path, client: str, plan: Plan) -> str:
    """A kubeconfig with everything inside; JSON is YAML."""
    def inline(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    context = plan.name
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{"name": context, "cluster": {
            "server": plan.api_url, "certificate-authority-data": inline("ca.crt")}}],
        "users": [{"name": client, "user": {
            "client-certificate-data": inline(f"{client}.crt"), "client-key-data": inline(f"{client}.key")}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": client}}],
    }, indent=1) + "\n"
