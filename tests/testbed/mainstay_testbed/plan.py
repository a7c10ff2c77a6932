"""The address plan and the names of one testbed. Pure: everything follows from a name, a range and a node number."""

import ipaddress
import re
import zlib
from dataclasses import dataclass

from .errors import TestbedError

DEFAULT_NAME = "mainstay"
DEFAULT_RANGE = "10.200.0.0/16"
MAX_NODES = 5
API_PORT = 6443
ZONES = 3
DERIVED_RANGES = 50

_NAME = re.compile(r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$")


def check_name(name: str) -> str:
    """A testbed's name ends up in link, namespace and folder names, so it is a short DNS label."""
    if not _NAME.match(name):
        raise TestbedError(f"the name {name!r} is not usable: take 1 to 20 lower-case letters, digits or dashes, "
                           "beginning with a letter")
    return name


def derived_range(name: str, taken: "set[str]") -> str:
    """The range of a testbed for which none was given: fixed for the default name, else the first free one
    at or after a place that the name decides, so that a name usually keeps its addresses."""
    if name == DEFAULT_NAME and DEFAULT_RANGE not in taken:
        return DEFAULT_RANGE
    first = zlib.crc32(name.encode()) % DERIVED_RANGES
    for step in range(DERIVED_RANGES):
        candidate = f"10.{201 + (first + step) % DERIVED_RANGES}.0.0/16"
        if candidate not in taken:
            return candidate
    raise TestbedError(f"all {DERIVED_RANGES} address ranges are taken by other testbeds: take one down first")


@dataclass(frozen=True)
class Plan:
    """Addresses and names of one testbed.

    One /16 is cut into: x.y.0.0/24 machines (host .1, control plane .2, node N .10+N), x.y.(64+N).0/24 the pods
    of node N, and x.y.128.0/20 the services.
    """

    name: str
    prefix: str  # "10.200"

    @staticmethod
    def of(name: str, cidr: str) -> "Plan":
        check_name(name)
        try:
            network = ipaddress.ip_network(cidr)
        except ValueError as error:
            raise TestbedError(f"the range {cidr!r} is no network ({error}): take one like {DEFAULT_RANGE}") from None
        if network.version != 4 or network.prefixlen != 16 or not network.is_private:
            raise TestbedError(f"the range {cidr} is not a private IPv4 /16: take one like {DEFAULT_RANGE}")
        first, second = str(network.network_address).split(".")[:2]
        return Plan(name, f"{first}.{second}")

    # addresses
    @property
    def range(self) -> str:
        return f"{self.prefix}.0.0/16"

    @property
    def host(self) -> str:
        return f"{self.prefix}.0.1"

    @property
    def control(self) -> str:
        return f"{self.prefix}.0.2"

    @property
    def machines(self) -> str:
        return f"{self.prefix}.0.0/24"

    @property
    def pods(self) -> str:
        return f"{self.prefix}.64.0/18"

    @property
    def services(self) -> str:
        return f"{self.prefix}.128.0/20"

    @property
    def api_service(self) -> str:
        return f"{self.prefix}.128.1"

    @property
    def dns_service(self) -> str:
        return f"{self.prefix}.128.10"

    @property
    def api_url(self) -> str:
        return f"https://{self.control}:{API_PORT}"

    @property
    def s3_port(self) -> int:
        return 9000

    @property
    def s3_url(self) -> str:
        return f"http://{self.control}:{self.s3_port}"

    def node_address(self, number: int) -> str:
        return f"{self.prefix}.0.{10 + number}"

    def node_pods(self, number: int) -> str:
        return f"{self.prefix}.{64 + number}.0/24"

    # names
    @property
    def _links(self) -> str:
        """Link names hold 15 characters, too few for a testbed's name; its range is as unique."""
        first, second = (int(part) for part in self.prefix.split("."))
        return f"tb{first:02x}{second:02x}"

    @property
    def bridge(self) -> str:
        return self._links

    @property
    def control_link(self) -> str:
        return f"{self._links}c"

    def node_link(self, number: int) -> str:
        return f"{self._links}n{number}"

    @property
    def control_namespace(self) -> str:
        return f"{self.name}-control"

    def node_namespace(self, number: int) -> str:
        return f"{self.name}-{node_name(number)}"

    @property
    def cgroup(self) -> str:
        return f"mainstay-testbed/{self.name}"


def node_name(number: int) -> str:
    return f"node-{number}"


def zone(number: int) -> str:
    """Like a cloud region: three zones, used in turn."""
    return f"zone-{(number - 1) % ZONES + 1}"


def node_number(node: str, nodes: int) -> int:
    """The number of a node given as `node-2` or `2`."""
    match = re.match(r"^(?:node-)?([1-9])$", node)
    if not match or int(match.group(1)) > nodes:
        known = ", ".join(node_name(n) for n in range(1, nodes + 1))
        raise TestbedError(f"there is no node {node!r} in this testbed: it has {known}")
    return int(match.group(1))


def check_nodes(count: int) -> int:
    if not 1 <= count <= MAX_NODES:
        raise TestbedError(f"{count} nodes are not possible: take 1 to {MAX_NODES}")
    return count
