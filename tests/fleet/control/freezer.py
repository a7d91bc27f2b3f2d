"""Freezes a process by a cgroup of its own, version 2 or 1."""

import contextlib
import time
from pathlib import Path

V2_ROOTS = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
V1_ROOT = Path("/sys/fs/cgroup/freezer")


def groups(identity):
    """(group directory, control file, value that freezes, value that thaws) of each freezer of this host, the newer first."""
    name = "inspector-fleet-" + identity
    for root in V2_ROOTS:
        if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
            yield root / name, "cgroup.freeze", "1", "0"
    if (V1_ROOT / "cgroup.procs").exists():
        yield V1_ROOT / name, "freezer.state", "FROZEN", "THAWED"


def freeze(identity, pid):
    """Freeze a process; an error when this host has no freezer."""
    problems = []
    for group, control, frozen, _ in groups(identity):
        try:
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(pid))
            (group / control).write_text(frozen)
        except OSError as error:
            problems.append(str(error))
            continue
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            events = group / ("cgroup.events" if control == "cgroup.freeze" else control)
            text = events.read_text()
            if "frozen 1" in text or text.strip() == "FROZEN":
                return str(group)
            time.sleep(0.01)
        problems.append("%s did not freeze within 10 s" % group)
    raise RuntimeError("no cgroup freezer to use: %s" % ("; ".join(problems) or "none is mounted"))


def thaw(identity):
    for group, control, _, thawed in groups(identity):
        with contextlib.suppress(OSError):
            if group.exists():
                (group / control).write_text(thawed)


def remove(identity):
    for group, _, _, _ in groups(identity):
        deadline = time.monotonic() + 5
        while group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.01)
