"""What a serving process does to itself: title, lifetime, thread names, settings."""

import ctypes
import itertools
import os
import signal
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

_numbers = itertools.count(1)


def set_title(title):
    """What setproctitle does: overwrite the argument area, so that /proc/PID/cmdline shows `title`, and set comm."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: fields 48 and 49, proc(5)
    text = title.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    LIBC.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)


def die_with_parent():
    """SGLang's children ask to be killed together with their parent."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start_thread(target, *args, name=None, daemon=True):
    """Start a thread under the name that Python 3.10 and newer give by themselves: `Thread-3 (transfer_worker)`."""
    name = name or "Thread-%d (%s)" % (next(_numbers), target.__name__)
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def setting(name, default):
    """A number from the environment."""
    return float(os.environ.get(name, default))


def address(name):
    """An abstract unix socket name of this half: no file to clean up."""
    return "inspector-fleet-%s-%s" % (os.environ["FLEET_ID"], name)


def ipc(name):
    return "ipc://@" + address(name)
