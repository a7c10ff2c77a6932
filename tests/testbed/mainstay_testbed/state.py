"""Where things are kept, and what is remembered of a testbed between two commands."""

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterator, List, Optional

from .errors import TestbedError
from .plan import Plan
from .progress import say

PROFILES = ("fast", "real")


def cache_dir() -> Path:
    """The folder for everything that outlives a checkout."""
    given = os.environ.get("MAINSTAY_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "mainstay"


def testbeds_dir() -> Path:
    return cache_dir() / "testbed"


@dataclass
class Settings:
    """What `up` decided; written before anything is made, so that `down` finds it after a crash at any point."""

    name: str
    range: str
    nodes: int
    profile: str
    boot: str
    complete: bool = False

    @property
    def plan(self) -> Plan:
        return Plan.of(self.name, self.range)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Home:
    """The state folder of one testbed."""

    name: str

    @property
    def path(self) -> Path:
        return testbeds_dir() / self.name

    @property
    def settings_file(self) -> Path:
        return self.path / "settings.json"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.path / "log"

    @property
    def s3(self) -> Path:
        return self.path / "s3"

    def file(self, name: str) -> Path:
        return self.path / name

    def node(self, node: str) -> Path:
        return self.path / "nodes" / node

    def volumes(self, node: str) -> Path:
        return self.node(node) / "volumes"

    def load(self) -> Optional[Settings]:
        try:
            return Settings(**json.loads(self.settings_file.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise TestbedError(f"the state of testbed {self.name} cannot be read ({self.settings_file}): "
                               "delete that file and run 'testbed up' again") from None

    def require(self) -> Settings:
        settings = self.load()
        if settings is None:
            raise TestbedError(f"there is no testbed named {self.name}: run 'testbed up' first")
        return settings

    def save(self, settings: Settings) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.settings_file, json.dumps(asdict(settings), indent=1) + "\n")


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """A reader, and a crash, see the old content or the new one."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text)
    temporary.chmod(mode)
    temporary.rename(path)


def known_testbeds() -> List[Settings]:
    found = (Home(entry.name).load() for entry in sorted(testbeds_dir().glob("*")) if entry.is_dir())
    return [settings for settings in found if settings]


@contextmanager
def locked(what: str) -> Iterator[None]:
    """One command at a time changes a thing; a second one waits and says so."""
    folder = cache_dir() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / what, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that holds {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
