"""The command line."""

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Callable, Dict, List, Optional

from . import cluster, control, faults, host, images, node, seed
from .errors import TestbedError
from .plan import DEFAULT_NAME, MAX_NODES, check_name, node_name, node_number
from .programs import binary, build
from .state import PROFILES, Home, known_testbeds, locked

DESCRIPTION = "A real multi-node Kubernetes on this Linux machine, without containers around it."
EPILOG = """\
environment:
  TESTBED_NAME     the testbed to use when --name is not given (default: mainstay)
  MAINSTAY_CACHE   folder for programs, images and state (default: ~/.cache/mainstay)

NODE is node-1 or 1. Everything is described in docs/testbed.md.
"""
PASS_THROUGH = ("kubectl", "helm")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="testbed", description=DESCRIPTION, epilog=EPILOG,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--name", default=os.environ.get("TESTBED_NAME") or DEFAULT_NAME, help="which testbed")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, *arguments: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help)
        for argument in arguments:
            added.add_argument(argument.lower(), metavar=argument)
        return added

    up = command("up", "start it, or what is missing of it: programs, images, control plane, nodes")
    up.add_argument("--nodes", type=int, metavar="N", help=f"how many nodes, 1 to {MAX_NODES} (default: 3)")
    up.add_argument("--profile", choices=PROFILES,
                    help="fast (default): node failures show after 10 s; real: the defaults of Kubernetes")
    up.add_argument("--range", metavar="CIDR", help="the /16 for its addresses (default: derived from the name)")
    command("down", "end it and remove all of it")
    command("status", "show testbeds, nodes and what is broken on purpose")
    command("kubeconfig", "print the path of the kubeconfig")
    command("load", "load an image archive into all nodes that are on", "IMAGE.tar")
    power_off = command("power-off", "cut a node's power: kill -9 of everything on it at once; unsynced writes are lost. "
                                     "'control' is the control plane", "NODE")
    power_off.add_argument("--keep-cache", action="store_true", help="let writes that were not synced reach the disk")
    command("power-on", "give a node its power back, and its volumes", "NODE")
    command("cut", "cut a node from everything", "NODE")
    command("cut-api", "cut a node and its pods from the API server only, both ways", "NODE")
    command("heal", "undo the cuts of a node", "NODE")
    command("freeze", "stop all processes of a node, as a hung machine; 'control' is the control plane", "NODE")
    command("thaw", "let a frozen node go on", "NODE")
    command("disk-error", "make every access to a volume an I/O error", "NODE", "VOLUME")
    command("disk-repair", "repair a volume that disk-error broke, once its pod is gone", "NODE", "VOLUME")
    s3 = command("s3", "print the S3 server's endpoint and credentials, as shell exports")
    s3.add_argument("--json", action="store_true", help="as JSON")
    _images_command(command("images", "build the images, print their names"))
    command("build", "build the programs that are not in the cache")
    logs = command("logs", "print the log of a program: etcd, kube-apiserver, node-1-kubelet, …; without a name, list them")
    logs.add_argument("log", nargs="?", metavar="NAME")
    execute = command("exec", "run a command in a node's namespaces", "NODE")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND …")
    for tool in PASS_THROUGH:
        command(tool, f"run {tool} with the testbed's kubeconfig; everything after it is {tool}'s")
    return top


def _images_command(added: argparse.ArgumentParser) -> None:
    added.add_argument("--rebuild", action="store_true", help="build them again, from today's packages")
    kinds = added.add_subparsers(dest="kind", metavar="KIND")
    operator = kinds.add_parser("operator", help="pack a static binary as the operator's image; prints the archive's path")
    operator.add_argument("--binary", type=Path, required=True, help="the binary; it becomes /usr/local/bin/mainstay")
    operator.add_argument("--tag", required=True, metavar="NAME:TAG", help="the image's name")
    operator.add_argument("--output", type=Path, metavar="FILE.tar", help="where to write it (default: the cache)")


def main(argv: List[str]) -> int:
    top = parser()
    tool = _pass_through(argv)
    options, rest = top.parse_known_args(argv[:tool + 1] if tool is not None else argv)
    if rest:
        top.error(f"unknown arguments: {' '.join(rest)}")
    try:
        host.extend_path()
        check_name(options.name)
        if tool is not None:
            return _run_tool(options, argv[tool], argv[tool + 1:])
        return COMMANDS[options.command](options) or 0
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, head for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except PermissionError as error:
        print(f"testbed: {error}: run the command as root", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        print("testbed: this is a mistake in the testbed; please report the lines above", file=sys.stderr)
        return 70


def _pass_through(argv: List[str]) -> Optional[int]:
    """Where `kubectl` or `helm` stands as the command; what follows it is not for us to parse."""
    skip = False
    for index, argument in enumerate(argv):
        if skip:
            skip = False
        elif argument == "--name":
            skip = True
        elif not argument.startswith("-"):
            return index if argument in PASS_THROUGH else None
    return None


def _run_tool(options: argparse.Namespace, tool: str, arguments: List[str]) -> int:
    home = Home(options.name)
    home.require()
    build([tool if tool == "helm" else "kubernetes"])
    argv = [str(binary("helm"))] if tool == "helm" else [str(binary("kubernetes")), "kubectl"]
    os.environ["KUBECONFIG"] = str(home.kubeconfig)
    os.execv(argv[0], argv + arguments)


def _up(options: argparse.Namespace) -> None:
    with locked(f"testbed-{options.name}"):
        cluster.up(options.name, options.nodes, options.profile, options.range)


def _down(options: argparse.Namespace) -> None:
    with locked(f"testbed-{options.name}"):
        cluster.down(options.name)


def _status(options: argparse.Namespace) -> None:
    testbeds = known_testbeds()
    if not testbeds:
        print("no testbed is up: run 'testbed up'")
    for settings in testbeds:
        home = Home(settings.name)
        mark = "" if settings.complete else " (its start was interrupted: run 'testbed up' again)"
        print(f"{settings.name}: {settings.nodes} nodes, profile {settings.profile}, {settings.range}{mark}")
        answers = settings.complete and faults.api_answers(home, settings)
        print(f"  API server  {settings.plan.api_url}  {'answers' if answers else 'does not answer'}")
        print(f"  S3          {settings.plan.s3_url}")
        ready = cluster.ready_nodes(home) if answers else []
        for number in range(1, settings.nodes + 1) if settings.complete else ():
            state = ", ".join(faults.conditions(home, settings, number))
            known = "Ready" if node_name(number) in ready else "NotReady" if answers else "unknown"
            print(f"  {node_name(number)}      {settings.plan.node_address(number):<14}  {known:<9} {state}")


def _kubeconfig(options: argparse.Namespace) -> None:
    home = Home(options.name)
    home.require()
    print(home.kubeconfig)


def _load(options: argparse.Namespace) -> None:
    home = Home(options.name)
    settings = home.require()
    numbers = [n for n in range(1, settings.nodes + 1) if node.init_pid(home, n)]
    seed.load(home, numbers, Path(getattr(options, "image.tar")))


def _images(options: argparse.Namespace) -> None:
    if options.kind == "operator":
        print(images.build_operator(options.binary, options.tag, options.output).path)
        return
    host.install_packages()
    archives = images.build(again=options.rebuild)
    seed.prepare(archives)
    for archive in [*archives, *images.operator_archives()]:
        for name in archive.names():
            print(name)


def _build(options: argparse.Namespace) -> None:
    build()


def _s3(options: argparse.Namespace) -> None:
    home = Home(options.name)
    settings = home.require()
    key = control.s3_credentials(home)
    values = {"AWS_ENDPOINT_URL": settings.plan.s3_url, "AWS_REGION": "us-east-1",
              "AWS_ACCESS_KEY_ID": key["access_key"], "AWS_SECRET_ACCESS_KEY": key["secret_key"],
              "S3_BUCKET": control.BUCKETS[0]}
    print(json.dumps(values) if options.json else "\n".join(f"export {k}={v}" for k, v in values.items()))


def _logs(options: argparse.Namespace) -> None:
    home = Home(options.name)
    home.require()
    if options.log is None:
        print("\n".join(sorted(path.stem for path in home.logs.glob("*.log"))))
        return
    file = home.logs / f"{options.log}.log"
    if not file.is_file():
        raise TestbedError(f"there is no log {options.log!r}: 'testbed logs' lists them")
    os.execvp("cat", ["cat", str(file)])


def _exec(options: argparse.Namespace) -> None:
    home = Home(options.name)
    settings = home.require()
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    enter = node.enter(home, node_number(options.node, settings.nodes))
    os.execvp(enter[0], enter + (argv or ["bash"]))


def _fault(action: Callable, *arguments: str) -> Callable[[argparse.Namespace], None]:
    def run(options: argparse.Namespace) -> None:
        home = Home(options.name)
        action(home, home.require(), options.node, *(getattr(options, argument) for argument in arguments))
    return run


COMMANDS: Dict[str, Callable[[argparse.Namespace], Optional[int]]] = {
    "up": _up, "down": _down, "status": _status, "kubeconfig": _kubeconfig, "load": _load, "images": _images,
    "build": _build, "s3": _s3, "logs": _logs, "exec": _exec,
    "power-off": _fault(faults.power_off, "keep_cache"), "power-on": _fault(faults.power_on),
    "cut": _fault(faults.cut), "cut-api": _fault(faults.cut_api), "heal": _fault(faults.heal),
    "freeze": _fault(faults.freeze), "thaw": _fault(faults.thaw),
    "disk-error": _fault(faults.break_disk, "volume"), "disk-repair": _fault(faults.repair_disk, "volume"),
}
