"""The checks of the self-test, in the order in which they run. Each raises AssertionError, or returns what it measured."""

import hashlib
import hmac
import json
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import workload
from harness import Testbed, wait

NODES = ["node-1", "node-2", "node-3"]
PODS = [f"{workload.APP}-{ordinal}" for ordinal in range(3)]


class Checks:
    """Checks of one running testbed with the workload on it."""

    def __init__(self, testbed: Testbed):
        self.testbed = testbed

    def _node_of(self, pod: str) -> str:
        return self.testbed.get("pod", pod)["spec"]["nodeName"]

    def _all_ready(self) -> bool:
        return all(self.testbed.pod_ready(pod) for pod in PODS)

    def workload_starts(self) -> str:
        self.testbed.apply(*workload.objects())
        return f"three MySQL pods ready in {wait('pods ready', self._all_ready, 120):.1f} s"

    def up_again_is_quick(self) -> None:
        self.testbed.run("up")

    def names_resolve(self) -> None:
        for name in (f"{PODS[1]}.{workload.APP}-each", f"{workload.APP}-any.default.svc", "kubernetes.default.svc"):
            assert self.testbed.in_pod(PODS[0], f"getent hosts {name}"), f"{name} does not resolve in a pod"

    def services_answer(self) -> None:
        """From every pod (its own server among the endpoints), and from the host."""
        for pod in PODS:
            for _ in range(3):
                said = self.testbed.in_pod(pod, f"mysql -h {workload.APP}-any -uroot -e 'select 1' 2>&1 || true")
                assert "is not allowed to connect" in said, f"no MySQL server answers {pod}: {said.strip()}"
        address = self.testbed.get("service", f"{workload.APP}-any")["spec"]["clusterIP"]
        with socket.create_connection((address, 3306), timeout=5) as connection:
            assert connection.recv(64), "no answer to the host"

    def webhooks_are_reached(self) -> None:
        """The API server calls a service for a webhook: here one that speaks MySQL, so the call must fail at TLS."""
        hook = {"name": "hook.testbed.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
                "failurePolicy": "Fail", "clientConfig": {"service": {"name": f"{workload.APP}-any", "namespace": "default",
                                                                      "port": 3306}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}
        self.testbed.apply({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                            "metadata": {"name": "selftest"}, "webhooks": [hook]})
        try:
            def answered() -> bool:
                said = self.testbed.run("kubectl", "create", "configmap", "hooked", expect_failure=True)
                return "first record does not look like a TLS handshake" in said

            wait("the webhook is called", answered, 10)
        finally:
            self.testbed.kubectl("delete", "validatingwebhookconfiguration", "selftest")

    def logs_of_every_node(self) -> None:
        for pod in PODS:
            assert "ready for connections" in self.testbed.kubectl("logs", pod), f"no log of {pod}"

    def pod_security_is_enforced(self) -> None:
        said = self.testbed.run("kubectl", "label", "namespace", "default", "--overwrite",
                                "pod-security.kubernetes.io/enforce=restricted")
        try:
            said = self.testbed.run("kubectl", "run", "bad", "--image=mysql:9.7.4", "--privileged", expect_failure=True)
            assert "violates PodSecurity" in said, said
        finally:
            self.testbed.kubectl("label", "namespace", "default", "pod-security.kubernetes.io/enforce-")

    def versions_differ(self) -> None:
        for tag, version in (("9.7.4", "9.7.4-"), ("9.7.4-next", "9.7.4-next"), ("9.7.4-broken", "9.7.4-broken")):
            name = f"version-{tag.replace('.', '-')}"
            self.testbed.apply(workload.pod(name, f"mysql:{tag}", ["mysqld", "--version"]))
            wait(f"{tag} tells its version", lambda: version in self.testbed.kubectl("logs", name, "--ignore-errors"), 20)
        self.testbed.apply(workload.pod("broken", "mysql:9.7.4-broken", ["mysqld"]))
        wait("the broken one fails", lambda: self.testbed.get("pod", "broken")["status"]["phase"] == "Failed", 20)
        self.testbed.kubectl("delete", "pod", "--wait=false", "--selector=!app")

    def small_claims_are_refused(self) -> None:
        self.testbed.apply(workload.claim("tiny", "100Mi"), workload.pod("tiny", "mysql:9.7.4", ["true"], volume_of="tiny"))

        def refused() -> bool:
            events = self.testbed.get("events", "--field-selector=involvedObject.name=tiny,reason=ProvisioningFailed")
            return any("at least 300 MiB" in event["message"] for event in events["items"])

        wait("an event says so", refused, 20)
        self.testbed.kubectl("delete", "pod/tiny", "pvc/tiny", "--wait=false")

    def disk_fills_up(self) -> str:
        said = self.testbed.in_pod(PODS[0], "dd if=/dev/zero of=/data/fill bs=1M 2>&1; df -m /data | tail -1")
        assert "No space left on device" in said, said
        size = int(said.split()[-5])
        assert 490 <= size <= 500, f"the volume has {size} MiB"
        return f"at {size} MiB"

    def volume_grows_while_mounted(self) -> str:
        self.testbed.kubectl("patch", "pvc", f"data-{PODS[0]}", "--type=merge",
                             '--patch={"spec":{"resources":{"requests":{"storage":"1Gi"}}}}')
        seen = wait("the pod sees it", lambda: int(self.testbed.in_pod(PODS[0], "df -m /data | tail -1").split()[1]) > 900, 30)
        done = wait("the claim has it", lambda: self.testbed.get("pvc", f"data-{PODS[0]}")["status"]["capacity"]["storage"]
                    == "1Gi", 60)
        self.testbed.in_pod(PODS[0], "rm /data/fill")
        return f"seen by the pod after {seen:.1f} s, by the claim after {seen + done:.1f} s"

    def fixed_volumes_do_not_grow(self) -> None:
        self.testbed.apply(workload.claim("fixed", "500Mi", "testbed-fixed"),
                           workload.pod("fixed", "mysql:9.7.4", ["true"], volume_of="fixed"))
        wait("it is bound", lambda: self.testbed.get("pvc", "fixed")["status"]["phase"] == "Bound", 20)
        said = self.testbed.run("kubectl", "patch", "pvc", "fixed", "--type=merge",
                                '--patch={"spec":{"resources":{"requests":{"storage":"1Gi"}}}}', expect_failure=True)
        assert "must support resize" in said, said
        wait("it is used", lambda: self.testbed.get("pod", "fixed")["status"]["phase"] == "Succeeded", 20)
        self.testbed.kubectl("delete", "pod/fixed", "pvc/fixed")
        wait("its volume is deleted", lambda: len(self.testbed.get("pv")["items"]) == len(PODS), 20)

    def power_is_cut(self) -> str:
        """Synced writes survive, others do not; the node is seen NotReady and comes back with its pod and volume."""
        pod = PODS[1]
        node = self._node_of(pod)
        self.testbed.in_pod(pod, "echo kept >/data/synced; sync; echo lost >/data/unsynced")
        begun = time.monotonic()
        self.testbed.run("power-off", node)
        off = time.monotonic() - begun
        noticed = wait("NotReady", lambda: not self.testbed.node_ready(node), 30)
        self.testbed.run("power-on", node)
        back = wait("Ready again", lambda: self.testbed.node_ready(node), 60)
        wait("its pod is back", lambda: self.testbed.pod_ready(pod), 90)
        assert "kept" in self.testbed.in_pod(pod, "cat /data/synced"), "a synced write is gone"
        assert "lost" not in self.testbed.in_pod(pod, "cat /data/unsynced || true"), "an unsynced write survived"
        return f"off in {off:.1f} s, NotReady after {noticed:.1f} s, Ready {back:.1f} s after power-on"

    def _reaches(self, pod: str, other: str) -> bool:
        address = self.testbed.get("pod", other)["status"]["podIP"]
        return "is not allowed" in self.testbed.in_pod(
            pod, f"timeout 2 mysql --connect-timeout=1 -h {address} -uroot -e 'select 1' 2>&1 || true")

    def node_is_cut(self) -> str:
        node = self._node_of(PODS[2])
        assert self._reaches(PODS[0], PODS[2]), "pods do not reach each other to begin with"
        self.testbed.run("cut", node)
        assert not self._reaches(PODS[0], PODS[2]), "the cut node's pod is reached"
        noticed = wait("NotReady", lambda: not self.testbed.node_ready(node), 30)
        self.testbed.run("heal", node)
        back = wait("Ready again", lambda: self.testbed.node_ready(node), 60)
        wait("all pods are back", self._all_ready, 90)
        return f"NotReady after {noticed:.1f} s, Ready {back:.1f} s after heal"

    def node_is_cut_from_the_api(self) -> str:
        node = self._node_of(PODS[2])
        self.testbed.run("cut-api", node)
        assert self._reaches(PODS[0], PODS[2]), "pods do not reach the node's pod"
        noticed = wait("NotReady", lambda: not self.testbed.node_ready(node), 30)
        enter = self.testbed.run("exec", node, "--", "bash", "-c", "timeout 2 bash -c 'exec 3<>/dev/tcp/$0/6443' || echo cut",
                                 self._control_address())
        assert "cut" in enter, "the node reaches the API server"
        self.testbed.run("heal", node)
        wait("Ready again", lambda: self.testbed.node_ready(node), 60)
        wait("all pods are back", self._all_ready, 90)
        return f"NotReady after {noticed:.1f} s"

    def _control_address(self) -> str:
        return self.testbed.get("endpointslice", "kubernetes")["endpoints"][0]["addresses"][0]

    def node_hangs(self) -> str:
        node = self._node_of(PODS[1])
        self.testbed.run("freeze", node)
        assert "frozen" in self.testbed.run("status"), "the status does not show it"
        noticed = wait("NotReady", lambda: not self.testbed.node_ready(node), 30)
        self.testbed.run("thaw", node)
        back = wait("Ready again", lambda: self.testbed.node_ready(node), 60)
        wait("all pods are back", self._all_ready, 90)
        return f"NotReady after {noticed:.1f} s, Ready {back:.1f} s after thaw"

    def frozen_node_loses_power(self) -> None:
        node, before = self._node_of(PODS[1]), self._starts_of(PODS[1])
        self.testbed.run("freeze", node)
        self.testbed.run("power-off", node)
        self.testbed.run("power-on", node)
        wait("its pod runs anew", lambda: self._starts_of(PODS[1]) > before, 90)
        wait("all pods are back", self._all_ready, 90)

    def _starts_of(self, pod: str) -> int:
        return sum(status["restartCount"] for status in self.testbed.get("pod", pod)["status"]["containerStatuses"])

    def disk_breaks(self) -> None:
        pod = PODS[2]
        node = self._node_of(pod)
        self.testbed.run("disk-error", node, f"data-{pod}")
        said = self.testbed.in_pod(pod, "ls /data 2>&1 || true")
        assert "Input/output error" in said, said
        self.testbed.kubectl("scale", f"statefulset/{workload.APP}", "--replicas=2")
        self.testbed.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--ignore-not-found")
        wait("it is repaired", lambda: _succeeds(self.testbed, "disk-repair", node, f"data-{pod}"), 60)
        self.testbed.kubectl("scale", f"statefulset/{workload.APP}", "--replicas=3")
        wait("all pods are back", self._all_ready, 90)

    def control_plane_loses_power(self) -> None:
        address = self.testbed.get("pod", PODS[0])["status"]["podIP"]
        self.testbed.run("power-off", "control")
        with socket.create_connection((address, 3306), timeout=5) as connection:
            assert connection.recv(64), "a pod stopped with the control plane"
        self.testbed.run("kubectl", "get", "nodes", "--request-timeout=2s", expect_failure=True)
        self.testbed.run("power-on", "control")
        wait("the API server answers", lambda: _succeeds(self.testbed, "kubectl", "get", "--raw", "/readyz"), 30)
        wait("all nodes are ready", lambda: all(self.testbed.node_ready(node) for node in NODES), 60)

    def s3_stores(self) -> None:
        keys = json.loads(self.testbed.run("s3", "--json"))
        path = f"/{keys['S3_BUCKET']}/selftest/object"
        _s3(keys, "PUT", path, b"content")
        assert _s3(keys, "GET", path) == b"content", "the object came back changed"
        host, port = keys["AWS_ENDPOINT_URL"].removeprefix("http://").split(":")
        said = self.testbed.in_pod(PODS[0], f"timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/{port} && echo reached'")
        assert "reached" in said, "a pod does not reach the S3 server"

    def helm_works(self) -> None:
        assert "NAME" in self.testbed.run("helm", "list", "--all-namespaces"), "helm list says nothing"

    def operator_image_runs(self) -> None:
        """Any static binary will do; the same one gives the same bytes twice."""
        with tempfile.TemporaryDirectory() as folder:
            source, binary = Path(folder, "hello.c"), Path(folder, "hello")
            source.write_text('#include <stdio.h>\n#include <unistd.h>\nint main(void) {\n'
                              'printf("uid %d\\n", getuid());\nreturn 0; }\n')
            subprocess.run(["gcc", "-static", "-o", binary, source], check=True)
            archives = [Path(folder, f"{n}.tar") for n in (1, 2)]
            for archive in archives:
                self.testbed.run("images", "operator", f"--binary={binary}", "--tag=mainstay.dev/hello:test",
                                 f"--output={archive}")
            assert archives[0].read_bytes() == archives[1].read_bytes(), "two builds of one binary differ"
            self.testbed.run("load", str(archives[0]))
        self.testbed.apply(workload.pod("hello", "mainstay.dev/hello:test", ["/usr/local/bin/mainstay"]))
        wait("it ran", lambda: "uid 65532" in self.testbed.kubectl("logs", "hello", "--ignore-errors"), 20)
        self.testbed.kubectl("delete", "pod", "hello")

    def mistakes_are_explained(self) -> None:
        for argv, expected in ((["power-off", "node-9"], "there is no node 'node-9'"),
                               (["up", "--nodes", "9"], "take 1 to 5"),
                               (["up", "--profile", "real"], "before you change it"),
                               (["load", "/nonexistent.tar"], "there is no image archive"),
                               (["disk-error", "node-1", "nonexistent"], "not found")):
            said = self.testbed.run(*argv, expect_failure=True)
            assert expected in said and "Traceback" not in said, f"{' '.join(argv)}: {said}"


def _succeeds(testbed: Testbed, *argv: str) -> bool:
    try:
        testbed.run(*argv)
        return True
    except AssertionError:
        return False


def _s3(keys: dict, method: str, path: str, body: bytes = b"") -> bytes:
    """One request to the S3 server, signed (version 4)."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    host = keys["AWS_ENDPOINT_URL"].removeprefix("http://")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    signed = ";".join(headers)
    request = "\n".join([method, path, "", *(f"{k}:{v}" for k, v in headers.items()), "", signed, digest])
    scope = f"{now[:8]}/{keys['AWS_REGION']}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + keys["AWS_SECRET_ACCESS_KEY"].encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = (f"AWS4-HMAC-SHA256 Credential={keys['AWS_ACCESS_KEY_ID']}/{scope}, SignedHeaders={signed}, "
                                f"Signature={signature}")
    call = urllib.request.Request(keys["AWS_ENDPOINT_URL"] + path, data=body if method == "PUT" else None, headers=headers,
                                  method=method)
    with urllib.request.urlopen(call, timeout=10) as answer:
        return answer.read()
