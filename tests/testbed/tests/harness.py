"""What the self-test's checks are made of: a testbed driven through its command line, waiting with a deadline, a score."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List

TESTBED = Path(__file__).resolve().parent.parent / "testbed"


class Testbed:
    """One testbed, used only through its command line, as a person does."""

    __test__ = False

    def __init__(self, name: str):
        self.name = name

    def run(self, *argv: str, input: str = "", expect_failure: bool = False) -> str:
        """Runs `testbed ARGV` and returns its output; with `expect_failure`, it must fail and all it says is returned."""
        done = subprocess.run([str(TESTBED), "--name", self.name, *argv], input=input, capture_output=True, text=True)
        if expect_failure:
            assert done.returncode != 0, f"{' '.join(argv)} succeeded, and should not have"
            return done.stdout + done.stderr
        assert done.returncode == 0, f"testbed {' '.join(argv)}: {done.stderr.strip()[-500:]}"
        return done.stdout

    def kubectl(self, *argv: str, input: str = "") -> str:
        return self.run("kubectl", *argv, input=input)

    def apply(self, *objects: dict) -> None:
        self.kubectl("apply", "--filename=-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, *argv: str) -> dict:
        return json.loads(self.kubectl("get", *argv, "--output=json"))

    def in_pod(self, pod: str, script: str) -> str:
        return self.kubectl("exec", pod, "--", "sh", "-c", script)

    def node_ready(self, node: str) -> bool:
        conditions = self.get("node", node)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def pod_ready(self, pod: str) -> bool:
        try:
            found = self.get("pod", pod)
        except AssertionError:
            return False
        conditions = found["status"].get("conditions", [])
        return ("deletionTimestamp" not in found["metadata"]
                and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions))


def wait(what: str, condition: Callable[[], bool], seconds: float) -> float:
    """Waits until a condition holds and returns how long that took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - begun


class Score:
    """Runs checks, prints each with its time, and counts."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, what: str, action: Callable[[], object]) -> None:
        begun = time.monotonic()
        try:
            note = action()
        except AssertionError as error:
            self.failed += 1
            print(f"FAILED {time.monotonic() - begun:6.1f} s  {what}: {error}", flush=True)
        else:
            self.passed += 1
            print(f"ok     {time.monotonic() - begun:6.1f} s  {what}{f' ({note})' if note else ''}", flush=True)

    def close(self) -> int:
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def host_footprint() -> "dict[str, List[str]]":
    """Everything that a testbed could leave behind on the host."""
    def lines(*argv: str) -> List[str]:
        return sorted(subprocess.run(argv, capture_output=True, text=True).stdout.splitlines())

    return {
        "links": [line.split()[0].split("@")[0] for line in lines("ip", "-brief", "link")],
        "network namespaces": [line.split()[0] for line in lines("ip", "netns")],
        "routes": lines("ip", "route"),
        "firewall": lines("nft", "list", "ruleset"),
        "loop devices": lines("losetup", "--all"),
        "mounts": sorted(line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()),
        "control groups": sorted(str(p) for p in Path("/sys/fs/cgroup").rglob("mainstay-testbed/*") if p.is_dir()),
    }


def processes_mentioning(text: str) -> List[str]:
    """Command lines of processes in which a text occurs, this one's left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and str(TESTBED.parent / "tests") not in line:
            found.append(line.strip())
    return found


def fail(message: str) -> None:
    print(f"selftest: {message}", file=sys.stderr)
    sys.exit(2)
