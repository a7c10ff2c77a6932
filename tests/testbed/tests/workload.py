"""The workload of the self-test: three MySQL servers with volumes of their own."""

APP = "my"
LABELS = {"app": APP}

START = ("[ -d /data/d ] || mysqld --no-defaults --initialize-insecure --datadir=/data/d; exec mysqld --no-defaults "
         "--datadir=/data/d --socket=/data/s --mysqlx=off --innodb-buffer-pool-size=64M --innodb-redo-log-capacity=16M "
         "--skip-name-resolve")


def _service(name: str, **spec: object) -> dict:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": LABELS, "ports": [{"port": 3306}], **spec}}


def _container() -> dict:
    return {
        "name": "mysql", "image": "mysql:9.7.4", "command": ["sh", "-c", START],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "readinessProbe": {"exec": {"command": ["mysqladmin", "-S", "/data/s", "-uroot", "ping"]}, "periodSeconds": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}


def objects() -> "list[dict]":
    apart = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
    pod = {
        "securityContext": {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999, "runAsNonRoot": True,
                            "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container()]}
    return [
        _service(f"{APP}-each", clusterIP="None", publishNotReadyAddresses=True),
        _service(f"{APP}-any"),
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": APP}, "spec": {
            "serviceName": f"{APP}-each", "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "500Mi"}}}}]}},
    ]


def claim(name: str, size: str, storage_class: str = "testbed") -> dict:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": {"requests": {"storage": size}}}}


def pod(name: str, image: str, command: "list[str]", volume_of: str = "", **spec: object) -> dict:
    container = {"name": name, "image": image, "command": command}
    if volume_of:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume_of}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [container], **spec}}
