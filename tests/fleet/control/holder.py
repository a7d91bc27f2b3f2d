"""The process that owns a fleet: everything it starts dies with it, however it ends."""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import environment

from . import client, freezer

HERE = Path(__file__).resolve().parents[1]
PACKAGES = ["pyzmq==27.1.0"]
START_TIMEOUT_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


class Holder:
    def __init__(self, arguments):
        self.directory = arguments.state
        self.directory.mkdir(parents=True, exist_ok=True)
        # One fleet a state directory; the lock goes with the process.
        self.lock = open(self.directory / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError("a fleet of %s runs already: stop it first, or choose another --state" % self.directory)
        self.python = str(environment.ensure(PACKAGES))
        self.id = uuid.uuid4().hex[:12]
        self.arguments = arguments
        self.bootstrap_port = free_port()
        self.processes = {}
        self.pending = []
        self.state = {
            "id": self.id,
            "holder": os.getpid(),
            "backend": arguments.backend,
            "prefill": {"port": free_port()},
            "decode": {"port": free_port()},
        }
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control.bind("\0" + address(self.state, "holder"))

    def launch(self, role):
        log = open(self.directory / ("%s.log" % role), "ab")
        command = [self.python, "-m", "sglang.launch_server", "--model-path", "demo-2b", "--host", "127.0.0.1"]
        command += ["--port", str(self.state[role]["port"]), "--disaggregation-mode", role]
        command += ["--disaggregation-transfer-backend", self.arguments.backend]
        command += ["--disaggregation-bootstrap-port", str(self.bootstrap_port), "--disable-overlap-schedule"]
        variables = dict(
            os.environ,
            PYTHONPATH=str(HERE),
            PYTHONUNBUFFERED="1",
            FLEET_ID="%s-%s" % (self.id, role),
            FLEET_IDLE_MS="2" if self.arguments.gentle else "0",
            SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION="0",
            SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL=str(self.arguments.heartbeat),
        )
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        log.close()
        self.processes[role] = process
        self.state[role]["http"] = process.pid

    def wait_ready(self, role):
        """Until the half is up, and the pids of its children are known."""
        deadline = time.monotonic() + START_TIMEOUT_S
        process = self.processes[role]
        while True:
            if process.poll() is not None:
                raise RuntimeError("%s ended while it started: see %s" % (role, self.directory / ("%s.log" % role)))
            with contextlib.suppress(OSError):
                if client.get(self.state[role]["port"], "/health")[0] == 200:
                    break
            if time.monotonic() > deadline:
                raise RuntimeError("%s did not come up within %d s" % (role, START_TIMEOUT_S))
            time.sleep(0.05)
        for child in children(process.pid):
            title = Path("/proc/%d/comm" % child).read_text().strip()
            if title.startswith("sglang::"):
                self.state[role]["detokenizer" if title == "sglang::detoken" else "scheduler"] = child

    def save(self):
        fresh = self.directory / "state.json.new"
        fresh.write_text(json.dumps(self.state, indent=2))
        fresh.replace(self.directory / "state.json")

    def start(self):
        for role in ("prefill", "decode"):
            self.launch(role)
        for role in ("prefill", "decode"):
            self.wait_ready(role)
        self.save()
        warm = client.run(self.state, 1, START_TIMEOUT_S, count=1)
        if warm["failed"]:
            raise RuntimeError("the first request failed: %s" % warm["problems"])

    def obey(self):
        text, sender = self.control.recvfrom(4096)
        command = json.loads(text)
        answer = {}
        if command["do"] == "stop":
            self.control.sendto(b"{}", sender)
            return False
        if command["do"] == "restart":
            self.kill(command["role"])
            self.launch(command["role"])
            self.wait_ready(command["role"])
            self.save()
            answer = self.state
        elif command["do"] == "kill-half":
            self.kill(command["role"])
        elif command["do"] == "pending":
            log = self.directory / ("pending-%d.log" % len(self.pending))
            output = open(log, "wb")
            arguments = [sys.executable, "-m", "control.client", str(self.directory / "state.json"), str(command["count"])]
            variables = dict(os.environ, PYTHONPATH=str(HERE))
            self.pending.append(
                subprocess.Popen(arguments, env=variables, stdin=subprocess.DEVNULL, stdout=output, preexec_fn=die_with_parent)
            )
            output.close()
            answer = {"log": str(log)}
        elif command["do"] == "fifo":
            path = self.directory / "fifo"
            path.unlink() if path.exists() else None
            os.mkfifo(str(path))
            self.fifo = os.open(str(path), os.O_RDWR)  # its write end stays open here, and nothing is ever written
            answer = {"path": str(path)}
        self.control.sendto(json.dumps(answer).encode(), sender)
        return True

    def kill(self, role):
        process = self.processes[role]
        family = [process.pid] + children(process.pid)
        process.kill()
        process.wait()
        for pid in family:
            wait_gone(pid)

    def close(self):
        # A second signal must not keep this from ending what was started.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        freezer.thaw(self.id)
        for process in list(self.processes.values()) + self.pending:
            if process.poll() is None:
                process.kill()
        for process in list(self.processes.values()) + self.pending:
            process.wait()
        for role in ("prefill", "decode"):
            for kind in ("scheduler", "detokenizer"):
                if kind in self.state[role]:
                    wait_gone(self.state[role][kind])
        freezer.remove(self.id)
        with contextlib.suppress(FileNotFoundError):
            (self.directory / "state.json").unlink()


def children(pid):
    try:
        return [int(child) for child in Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]
    except OSError:
        return []


def adopt_orphans():
    """The children of a killed half become this process's, which then reaps them (PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def wait_gone(pid):
    deadline = time.monotonic() + 10
    while os.path.exists("/proc/%d" % pid) and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def address(state, name):
    return "inspector-fleet-%s-%s" % (state["id"], name)


def ask(state, name, command, timeout=30):
    """Send a command to a control socket (`holder`, `prefill-control`, `decode-control`) and give its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asker:
        asker.bind("\0" + address(state, uuid.uuid4().hex))
        asker.settimeout(timeout)
        try:
            asker.sendto(json.dumps(command).encode(), "\0" + address(state, name))
            return json.loads(asker.recv(65536))
        except OSError as error:
            raise RuntimeError("%s does not answer %s: %s" % (name, command["do"], error))


def load_state(directory):
    try:
        return json.loads((directory / "state.json").read_text())
    except FileNotFoundError:
        raise RuntimeError("no fleet runs in %s: start one first" % directory)


class Ended(Exception):
    """A signal asked the holder to end."""


def hold(arguments):
    def end(_number, _frame):
        raise Ended()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    adopt_orphans()
    holder = None
    try:
        holder = Holder(arguments)
        holder.start()
        print("ready " + json.dumps(holder.state), flush=True)
        watched = [holder.control, sys.stdin] if not os.environ.get("FLEET_DETACHED") else [holder.control]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if sys.stdin in ready and not os.read(0, 4096):
                return 0, None
            if holder.control in ready and not holder.obey():
                return 0, None
    except Ended:
        return 0, None
    finally:
        if holder:
            holder.close()


def start(arguments):
    """Start a holder that outlives this command."""
    arguments.state.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "fleet.py"), "--state", str(arguments.state), "hold"]
    command += ["--backend", arguments.backend, "--heartbeat", str(arguments.heartbeat)]
    command += ["--gentle"] if arguments.gentle else []
    with open(arguments.state / "holder.log", "ab") as log:
        process = subprocess.Popen(
            command,
            env=dict(os.environ, FLEET_DETACHED="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    for line in process.stdout:
        if line.startswith(b"ready "):
            return json.loads(line[6:])
    raise RuntimeError("the fleet did not start: see %s" % (arguments.state / "holder.log"))


def stop(directory):
    try:
        state = load_state(directory)
    except RuntimeError:
        return {"stopped": False}
    with contextlib.suppress(RuntimeError):
        ask(state, "holder", {"do": "stop"})
    wait_gone(state["holder"])
    return {"stopped": True}


