"""Running other programs, and doing several things at once."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterable, Optional, Sequence

from .errors import TestbedError


def run(argv: Sequence[str], *, attempt: str, input: Optional[str] = None, cwd: Optional[Path] = None,
        env: Optional[dict] = None, timeout: Optional[float] = None) -> str:
    """Runs a program and returns its standard output; a failure says what was attempted and what the program said."""
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(argv, input=input, capture_output=True, text=True, cwd=cwd, env=env, timeout=timeout)
    except FileNotFoundError:
        raise TestbedError(f"failed to {attempt}: the program {argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise TestbedError(f"failed to {attempt}: {argv[0]} did not end within {timeout:.0f} s") from None
    if done.returncode != 0:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-6:]) or f"exit status {done.returncode}"
        raise TestbedError(f"failed to {attempt}: {argv[0]}: {said}")
    return done.stdout


def succeeds(argv: Sequence[str], input: Optional[str] = None) -> bool:
    """Whether a program exits with 0; its output is dropped."""
    try:
        return subprocess.run([str(a) for a in argv], input=input, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, **({} if input is not None else {"stdin": subprocess.DEVNULL})
                              ).returncode == 0
    except FileNotFoundError:
        return False


def in_parallel(tasks: Iterable[Callable[[], object]]) -> list:
    """Runs all tasks at once, waits for every one, then raises the first error if there was one."""
    tasks = list(tasks)
    if not tasks:
        return []
    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        futures = [pool.submit(task) for task in tasks]
    return [future.result() for future in futures]
