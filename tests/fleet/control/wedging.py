"""The wedges: what each does, which family it belongs to, who is the culprit and who waits because of it."""

import os
import signal
import time

from . import client, freezer
from .holder import ask

HUNG_AFTER_S = 1.5


class Wedge:
    """How to bring about one wedge. `act` gives the facts: culprits, victims."""

    def __init__(self, family, act, hangs=True):
        self.family, self.act, self.hangs = family, act, hangs


def inside(role, what, **more):
    """A wedge that a scheduler process brings about in itself."""
    return lambda state: ask(state, role + "-control", dict(more, do=what))


def process(state, role, kind):
    return {"kind": "process", "pid": state[role][kind], "tid": None, "thread": None}


def prefill_replaced(state):
    """Prefill is killed, a request makes decode send to the dead one, a fresh prefill comes up: every health check is green."""
    facts = ask(state, "decode-control", {"do": "blocked-send"})
    ask(state, "holder", {"do": "kill-half", "role": "prefill"})
    # A send that decode makes before its I/O thread has noticed the loss goes into a pipe that is on its way out, and returns.
    for _ in range(10):
        ask(state, "holder", {"do": "pending", "count": 1})
        if is_asleep(state["decode"]["scheduler"], 6):
            break
    else:
        raise RuntimeError("decode's scheduler does not block in its send")
    ask(state, "holder", {"do": "restart", "role": "prefill"}, timeout=90)
    wait_for_heartbeat(facts["victims"][0])
    return facts


def is_asleep(pid, patience):
    """The scheduler thread spins while it is well: the same voluntary switch count for half a second means that it stands."""
    deadline = time.monotonic() + patience
    before, since = None, time.monotonic()
    while time.monotonic() < deadline:
        now = switches(pid, pid)
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 0.5:
            return True
        time.sleep(0.02)
    return False


def wait_until_asleep(pid):
    if not is_asleep(pid, 30):
        raise RuntimeError("process %d goes on working" % pid)


def wait_for_heartbeat(victim):
    """Until it waits without a deadline: a futex call whose timeout pointer is null."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with open("/proc/%d/task/%d/syscall" % (victim["pid"], victim["tid"])) as file:
            words = file.read().split()
        if words[0] in ("202", "98") and int(words[4], 16) == 0:  # futex on x86-64, arm64
            return
        time.sleep(0.05)
    raise RuntimeError("the heartbeat thread never came to want the lock")


def switches(pid, tid):
    with open("/proc/%d/task/%d/status" % (pid, tid)) as status:
        for line in status:
            if line.startswith("voluntary_ctxt_switches"):
                return int(line.split()[1])


def tcp_send(state):
    reader = ask(state, "decode-control", {"do": "accept-and-never-read"})
    facts = ask(state, "prefill-control", {"do": "blocked-tcp-send", "port": reader["port"]})
    facts["peer"] = process(state, "decode", "scheduler")
    return facts


def stopped(role, kind):
    def act(state):
        os.kill(state[role][kind], signal.SIGSTOP)
        return {"culprits": [process(state, role, kind)], "victims": []}

    return act


def frozen(role, kind):
    def act(state):
        group = freezer.freeze(state["id"], state[role][kind])
        return {"culprits": [process(state, role, kind)], "victims": [], "cgroup": group}

    return act


def fifo(state):
    path = ask(state, "holder", {"do": "fifo"})["path"]
    return ask(state, "prefill-control", {"do": "reads-fifo", "path": path})


WEDGES = {
    "thread-died": Wedge("thread-died", inside("decode", "malformed-message")),
    "thread-died-bootstrap": Wedge("thread-died", inside("prefill", "malformed-message")),
    "thread-died-transfer": Wedge("thread-died", inside("prefill", "transfer-worker-dies")),
    "blocked-send": Wedge("blocked-send", prefill_replaced),
    "blocked-send-tcp": Wedge("blocked-send", tcp_send),
    "gil-starvation": Wedge("gil-starvation", inside("prefill", "gil-held")),
    "deadlock-cycle": Wedge("deadlock-cycle", inside("prefill", "two-mutexes")),
    "deadlock-gil": Wedge("deadlock-cycle", inside("prefill", "gil-against-mutex")),
    "peer-stopped": Wedge("peer-stopped", stopped("decode", "scheduler")),
    "peer-frozen": Wedge("peer-stopped", frozen("decode", "scheduler")),
    "scheduler-stuck": Wedge("scheduler-stuck", inside("decode", "sleeps")),
    "scheduler-stuck-lock": Wedge("scheduler-stuck", inside("prefill", "waits-for-lock")),
    "scheduler-stuck-fifo": Wedge("scheduler-stuck", fifo),
}


def wedge(state, name, pending):
    """Bring a wedge about, leave requests hanging in it, and say who did what."""
    chosen = WEDGES[name]
    facts = chosen.act(state)
    hung = None
    if pending:
        log = ask(state, "holder", {"do": "pending", "count": pending})["log"]
        time.sleep(HUNG_AFTER_S)
        with open(log) as file:
            hung = pending - len(file.readlines())
    health = {role: client.get(state[role]["port"], "/health")[0] for role in ("prefill", "decode")}
    return dict(facts, wedge=name, family=chosen.family, pending=pending, hung=hung, wedged=not pending or hung > 0, health=health)


def status(state):
    answer = dict(state)
    for role in ("prefill", "decode"):
        half = answer[role] = dict(state[role])
        try:
            half["health"] = client.get(half["port"], "/health")[0]
            half["threads"] = ask(state, role + "-control", {"do": "status"}, timeout=2)["threads"]
        except (OSError, RuntimeError) as error:
            half["problem"] = str(error)
    return answer
