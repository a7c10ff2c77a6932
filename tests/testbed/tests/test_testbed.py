"""The command line, configurations and the small parsers."""

import argparse
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from context import cgroups, cli, control, errors, host, node, plan, programs, state, supervise


class CommandLine(unittest.TestCase):
    def parse(self, *argv: str) -> argparse.Namespace:
        return cli.parser().parse_args(argv)

    def test_every_command_is_carried_out_by_something(self):
        choices = next(action.choices for action in cli.parser()._actions if isinstance(action.choices, dict))
        self.assertEqual(set(choices), set(cli.COMMANDS) | set(cli.PASS_THROUGH))

    def test_up(self):
        options = self.parse("--name", "ci", "up", "--nodes", "5", "--profile", "real")
        self.assertEqual((options.name, options.nodes, options.profile, options.range), ("ci", 5, "real", None))

    def test_the_name_comes_from_the_environment(self):
        with mock.patch.dict(os.environ, {"TESTBED_NAME": "other"}):
            self.assertEqual(self.parse("status").name, "other")
        with mock.patch.dict(os.environ):
            os.environ.pop("TESTBED_NAME", None)
            self.assertEqual(self.parse("status").name, plan.DEFAULT_NAME)

    def test_what_follows_kubectl_is_not_ours(self):
        self.assertEqual(cli._pass_through(["kubectl", "get", "pods", "--name", "x"]), 0)
        self.assertEqual(cli._pass_through(["--name", "helm", "helm", "list"]), 2)
        self.assertEqual(cli._pass_through(["--name=ci", "kubectl"]), 1)
        self.assertIsNone(cli._pass_through(["exec", "node-1", "kubectl"]))

    def test_mistakes_end_with_one_sentence(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"MAINSTAY_CACHE": folder}), \
                contextlib.redirect_stderr(said):
            self.assertEqual(cli.main(["kubeconfig"]), 1)
            self.assertEqual(cli.main(["--name", "../x", "status"]), 1)
        self.assertEqual(len(said.getvalue().splitlines()), 2)
        self.assertIn("run 'testbed up' first", said.getvalue())


class Configurations(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self._environment = mock.patch.dict(os.environ, {"MAINSTAY_CACHE": self._folder.name})
        self._environment.start()
        self.home = state.Home("mainstay")
        self.home.path.mkdir(parents=True)

    def tearDown(self):
        self._environment.stop()
        self._folder.cleanup()

    def settings(self, profile: str) -> state.Settings:
        return state.Settings("mainstay", plan.DEFAULT_RANGE, 3, profile, "boot")

    def test_settings_survive(self):
        self.assertIsNone(self.home.load())
        self.home.save(self.settings("fast"))
        self.assertEqual(self.home.load(), self.settings("fast"))

    def test_the_real_profile_changes_no_default(self):
        argv = [word for command in control.control_commands(self.home, self.settings("real")) for word in command["argv"]]
        self.assertFalse([word for word in argv if "toleration" in word or "node-monitor" in word])
        self.assertNotIn("nodeLeaseDurationSeconds", node.kubelet_config(self.home, self.settings("real"), 1))

    def test_the_fast_profile_renews_leases_before_they_are_missed(self):
        fast = node.kubelet_config(self.home, self.settings("fast"), 1)
        self.assertLess(fast["nodeLeaseDurationSeconds"], 10)

    def test_manifests_have_one_default_class(self):
        items = json.loads(control.manifests(plan.Plan.of("mainstay", plan.DEFAULT_RANGE)))["items"]
        classes = {item["metadata"]["name"]: item for item in items if item["kind"] == "StorageClass"}
        default = [name for name, item in classes.items() if item["metadata"]["annotations"]]
        self.assertEqual(default, ["testbed"])
        self.assertTrue(classes["testbed"]["allowVolumeExpansion"])
        self.assertFalse(classes["testbed-fixed"]["allowVolumeExpansion"])

    def test_credentials_are_made_once(self):
        self.assertEqual(control.s3_credentials(self.home), control.s3_credentials(self.home))
        self.assertEqual(self.home.file("s3.json").stat().st_mode & 0o777, 0o600)


class Programs(unittest.TestCase):
    def test_versions(self):
        text = "module x\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/kubernetes-extra v9\n)\nrequire a.b/c/v2 v2.0.1\n"
        self.assertEqual(programs.module_version(text, "k8s.io/kubernetes"), "1.36.3")
        self.assertEqual(programs.module_version(text, "a.b/c/v2"), "2.0.1")
        with self.assertRaises(errors.TestbedError):
            programs.module_version(text, "a.b/c")

    def test_every_program_has_its_module(self):
        for name in programs.PROGRAMS:
            self.assertTrue(programs.binary(name).name.startswith(f"{name}-"))
        self.assertIn(programs.KUBERNETES_VERSION, programs.binary("kubernetes").name)


class ControlGroups(unittest.TestCase):
    def test_hybrid(self):
        found = cgroups.parse_mounts("""\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,nosuid,xattr,release_agent=/lib/systemd/x,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0
""")
        self.assertEqual([(h.version, h.options) for h in found], [(1, "cpu,cpuacct"), (1, "none,name=systemd"), (2, "")])

    def test_unified(self):
        found = cgroups.parse_mounts("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n")
        self.assertEqual(found, [cgroups.Hierarchy(Path("/sys/fs/cgroup"), 2, "")])


class HostChecks(unittest.TestCase):
    def test_too_little_of_everything_is_said(self):
        with mock.patch.object(host, "MEMORY_GIB_BASE", 1e6), self.subTest("memory"):
            self.assertIn("take fewer nodes", host._memory(3))
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"MAINSTAY_CACHE": folder}), \
                mock.patch.object(host, "DISK_GIB_BASE", 1e6), self.subTest("disk"):
            self.assertIn("MAINSTAY_CACHE", host._disk(3))
        with mock.patch.object(os, "geteuid", lambda: 1000), self.subTest("root"):
            self.assertRaisesRegex(errors.TestbedError, "sudo", host.check, 3)


class Supervisor(unittest.TestCase):
    def test_conditions(self):
        self.assertTrue(supervise.ready(""))
        self.assertFalse(supervise.ready("unix:/nonexistent"))
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            self.assertTrue(supervise.ready(f"tcp:127.0.0.1:{server.getsockname()[1]}"))

    def test_what_dies_is_started_again(self):
        with tempfile.TemporaryDirectory() as folder:
            mark, config = Path(folder, "mark"), Path(folder, "config.json")
            config.write_text(json.dumps([{"name": "a", "argv": ["sh", "-c", f"echo run >>{mark}"],
                                           "log": f"{folder}/a.log"}]))
            running = subprocess.Popen([sys.executable, "-I", "-S", supervise.__file__, str(config)])
            try:
                deadline = time.monotonic() + 10
                while time.monotonic() < deadline and (not mark.exists() or mark.read_text().count("run") < 2):
                    time.sleep(0.05)
                self.assertGreaterEqual(mark.read_text().count("run"), 2)
            finally:
                running.send_signal(signal.SIGKILL)
                running.wait()


if __name__ == "__main__":
    unittest.main()
