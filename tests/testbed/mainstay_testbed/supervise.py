"""A small init: starts commands in order, starts again what dies, reaps everything. PID 1 of a node; also runs the
control plane. Runs as `python -m mainstay_testbed.supervise FILE`, FILE being a list of `Command`s as JSON.

Standard library and this file only, without site packages: it starts in a few milliseconds.
"""

import json
import os
import select
import signal
import socket
import sys
import time

RESTART_SECONDS = 1.0
POLL_SECONDS = 0.03   # while something waits for its condition
IDLE_SECONDS = 30.0


def ready(condition: str) -> bool:
    """Whether a condition holds: "unix:PATH" or "tcp:HOST:PORT" accepts a connection; "" always holds."""
    if not condition:
        return True
    kind, _, where = condition.partition(":")
    try:
        if kind == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(0.5)
                probe.connect(where)
        else:
            host, _, port = where.rpartition(":")
            socket.create_connection((host, int(port)), timeout=0.5).close()
        return True
    except OSError:
        return False


def start(command: dict) -> int:
    """Starts one command with its output appended to its log; 0 if that fails. Not with `subprocess`, which waits for
    children itself now and then, so that their end would be missed here."""
    log = os.open(command["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        return os.posix_spawnp(command["argv"][0], command["argv"], {**os.environ, **command.get("env", {})}, setsid=True,
                               file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                                             (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)])
    except OSError as error:
        os.write(log, f"supervise: failed to start {command['name']}: {error}\n".encode())
        return 0
    finally:
        os.close(log)


def reap() -> list:
    """The children that ended since the last call, orphans of others among them."""
    ended = []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append(pid)


def child_signals() -> int:
    """A file descriptor that becomes readable when a child ends."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def main(commands: list) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signals = child_signals()
    running: dict = {}   # pid → command
    due = {index: 0.0 for index in range(len(commands))}  # commands to be started, and when
    while True:
        for pid in reap():
            if pid in running:
                due[running.pop(pid)] = time.monotonic() + RESTART_SECONDS
        now = time.monotonic()
        for index in sorted(due):
            if due[index] <= now and ready(commands[index].get("after", "")):
                pid = start(commands[index])
                if pid:
                    del due[index]
                    running[pid] = index
                else:
                    due[index] = now + RESTART_SECONDS
        if select.select([signals], [], [], POLL_SECONDS if due else IDLE_SECONDS)[0]:
            os.read(signals, 4096)


if __name__ == "__main__":
    with open(sys.argv[1]) as handle:
        main(json.load(handle))
