"""Faults on demand: power, network, hangs and disks. The control plane can lose its power or hang like a node."""

import time
from typing import List, Tuple

from . import control, network, node, storage
from .errors import TestbedError
from .plan import node_name, node_number
from .programs import binary
from .progress import say
from .run import succeeds
from .state import Home, Settings

CONTROL = "control"


def power_off(home: Home, settings: Settings, who: str, keep_cache: bool) -> None:
    begun = time.monotonic()
    if who == CONTROL:
        control.stop_part(home, settings.plan, control.CONTROL)
    else:
        # First the cable: a machine without power says goodbye to nobody, while the kernel of this one would.
        network.cut(settings.plan, node_number(who, settings.nodes))
        node.stop(home, settings.plan, node_number(who, settings.nodes), lose_cache=not keep_cache)
    say(f"{_full_name(who, settings)} is off ({(time.monotonic() - begun) * 1000:.0f} ms)")


def power_on(home: Home, settings: Settings, who: str) -> None:
    if who == CONTROL:
        control.start(home, settings)
    else:
        node.start(home, settings, node_number(who, settings.nodes))
    say(f"{_full_name(who, settings)} is on")


def freeze(home: Home, settings: Settings, who: str) -> None:
    _group(settings, who).freeze()
    say(f"{_full_name(who, settings)} is frozen")


def thaw(home: Home, settings: Settings, who: str) -> None:
    _group(settings, who).thaw()
    say(f"{_full_name(who, settings)} runs")


def _group(settings: Settings, who: str):
    if who == CONTROL:
        found = control.group(settings.plan, control.CONTROL)
    else:
        found = node.group(settings.plan, node_number(who, settings.nodes))
    if not found.pids():
        raise TestbedError(f"{_full_name(who, settings)} is powered off: run 'testbed power-on' first")
    return found


def _full_name(who: str, settings: Settings) -> str:
    return "the control plane" if who == CONTROL else node_name(node_number(who, settings.nodes))


def cut(home: Home, settings: Settings, who: str) -> None:
    network.cut(settings.plan, node_number(who, settings.nodes))
    say(f"{_full_name(who, settings)} reaches nothing and nothing reaches it")


def cut_api(home: Home, settings: Settings, who: str) -> None:
    network.cut_api(settings.plan, node_number(who, settings.nodes))
    say(f"{_full_name(who, settings)} and its pods do not reach the API server, nor it them")


def heal(home: Home, settings: Settings, who: str) -> None:
    network.heal(settings.plan, node_number(who, settings.nodes))
    say(f"{_full_name(who, settings)} is connected")


def break_disk(home: Home, settings: Settings, who: str, volume: str) -> None:
    name, pid, volume = _volume(home, settings, who, volume)
    storage.break_disk(home, name, pid, volume)
    say(f"every access to {volume} on {name} is an I/O error now")


def repair_disk(home: Home, settings: Settings, who: str, volume: str) -> None:
    name, pid, volume = _volume(home, settings, who, volume)
    storage.repair_disk(home, name, pid, volume)
    say(f"{volume} on {name} works again")


def _volume(home: Home, settings: Settings, who: str, given: str) -> Tuple[str, int, str]:
    """The node, its PID 1 and the volume's name, from a volume's name or a claim's ([NAMESPACE/]NAME)."""
    number = node_number(who, settings.nodes)
    pid = node.init_pid(home, number)
    if pid is None:
        raise TestbedError(f"{node_name(number)} is powered off: run 'testbed power-on {node_name(number)}' first")
    if (home.volumes(node_name(number)) / given).is_dir():
        return node_name(number), pid, given
    namespace, _, claim = given.rpartition("/")
    volume = control.kubectl(home, ["get", "pvc", claim, f"--namespace={namespace or 'default'}",
                                    "--output=jsonpath={.spec.volumeName}"], f"find the volume of the claim {given}")
    return node_name(number), pid, volume


def conditions(home: Home, settings: Settings, number: int) -> List[str]:
    """What is wrong with a node on purpose, in words."""
    if node.init_pid(home, number) is None:
        return ["off"]
    found = ["frozen"] if node.group(settings.plan, number).frozen() else ["on"]
    return found + network.cuts(settings.plan, number)


def api_answers(home: Home, settings: Settings) -> bool:
    return succeeds([binary("kubernetes"), "kubectl", f"--kubeconfig={home.kubeconfig}", "get", "--raw", "/readyz",
                     "--request-timeout=3s"])
