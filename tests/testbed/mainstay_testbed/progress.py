"""Progress: nothing that takes longer than two seconds is silent."""

import sys
import threading
import time
from contextlib import contextmanager
from typing import Iterator

_started = time.monotonic()
_lock = threading.Lock()
_dots = False  # whether the last line is unfinished
HEARTBEAT_SECONDS = 2.0


def _write(text: str, dots: bool) -> None:
    """Writes to standard error; `dots` text continues the last line, other text begins a new one."""
    global _dots
    with _lock:
        if _dots and not dots:
            text = "\n" + text
        _dots = dots
        sys.stderr.write(text)
        sys.stderr.flush()


def say(text: str) -> None:
    """Prints one line with the seconds since the command began."""
    _write(f"[{time.monotonic() - _started:6.1f}s] {text}\n", dots=False)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announces a step, then prints a dot every two seconds while it runs."""
    say(text)
    done = threading.Event()

    def heartbeat() -> None:
        wait = " " * 10 + "."
        while not done.wait(HEARTBEAT_SECONDS):
            _write(wait, dots=True)
            wait = "."

    watcher = threading.Thread(target=heartbeat, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        _write("", dots=False)
