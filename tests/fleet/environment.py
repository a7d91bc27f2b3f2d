"""Make a virtual environment of the running Python once, and print its interpreter.

python3 tests/fleet/environment.py pyzmq==27.1.0 ...      into $INSPECTOR_VENVS, else target/venvs of the checkout

Safe to run from several processes at once: one makes it, the others wait. Needs Python 3.8 or newer.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


def directory():
    given = os.environ.get("INSPECTOR_VENVS")
    return Path(given) if given else Path(__file__).resolve().parents[2] / "target" / "venvs"


def ensure(packages):
    """Path of the interpreter of a virtual environment that has `packages`."""
    name = "%d.%d-%s" % (*sys.version_info[:2], hashlib.sha256(repr((sys.executable, sorted(packages))).encode()).hexdigest()[:12])
    root = directory()
    root.mkdir(parents=True, exist_ok=True)
    venv = root / name
    python = venv / "bin" / "python"
    done = venv / "complete"
    if done.exists():
        return python
    with open(root / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return python
        shutil.rmtree(venv, ignore_errors=True)
        sys.stderr.write("making a virtual environment with %s\n" % " ".join(packages))
        run([sys.executable, "-m", "venv", str(venv)], "on Debian: apt-get install python3-venv")
        if packages:
            run(
                [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", *packages],
                "is a package index reachable?",
            )
        done.touch()
    return python


def run(command, hint):
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if finished.returncode != 0:
        sys.stderr.write(finished.stdout.decode(errors="replace"))
        raise SystemExit("%s failed (%s)" % (" ".join(command), hint))


if __name__ == "__main__":
    print(ensure(sys.argv[1:]))
