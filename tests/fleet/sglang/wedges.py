"""Ways to hang from inside a scheduler process.

`prepare` answers who will be the culprit and who waits because of it, then gives the function that does it: the answer must be
on its way before the event loop stands still.
"""

import ctypes
import os
import socket
import threading
import time

import zmq

HOLDS_GIL = ctypes.PyDLL(None)  # a PyDLL call keeps the GIL, as a C extension does that forgets to release it
RELEASES_GIL = ctypes.CDLL(None)


def party(thread):
    return {"kind": "thread", "pid": os.getpid(), "tid": thread.native_id, "thread": thread.name}


def missing(thread):
    return {"kind": "missing-peer", "pid": os.getpid(), "tid": None, "thread": thread.name, "was_tid": thread.native_id}


def prepare(scheduler, command):
    facts, then = WEDGES[command["do"]](scheduler, command)
    return dict({"culprits": [], "victims": []}, **facts), then


def status(_scheduler, _command):
    threads = [{"tid": thread.native_id, "name": thread.name} for thread in threading.enumerate()]
    return {"pid": os.getpid(), "threads": threads}, lambda: None


# A thread dies and its process lives on.


def malformed_message(scheduler, _command):
    """A message of one frame where the listener expects several: its unpacking raises, and nothing guards the loop."""
    manager = scheduler.manager

    def send():
        stray = manager.context.socket(zmq.PUSH)
        stray.connect("tcp://127.0.0.1:%d" % manager.rank_port)
        stray.send(b"malformed")
        manager.listener.join(30)
        stray.close(linger=0)

    return {"culprits": [missing(manager.listener)]}, send


class UndeliverableChunks:
    """A transfer that raises in its worker."""

    def transfer(self, _manager, _sockets):
        raise KeyError("no such session")


def transfer_worker_dies(scheduler, command):
    number = command.get("worker", 1)
    worker = scheduler.manager.workers[number]
    return {"culprits": [missing(worker)]}, lambda: scheduler.manager.queues[number].put(UndeliverableChunks())


# A send that nobody reads.


def blocked_send(scheduler, _command):
    """The next request makes it: the prefill that decode knows is gone by then."""
    manager = scheduler.manager
    facts = {"culprits": [party(threading.main_thread())], "victims": [party(manager.heartbeat)], "endpoint": manager.prefill["endpoint"]}
    return facts, lambda: None


def accept_and_never_read(scheduler, _command):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    listener.settimeout(30)

    def accept():
        scheduler.unread = listener.accept()[0]
        listener.close()

    return {"port": listener.getsockname()[1], "pid": os.getpid()}, accept


def blocked_tcp_send(_scheduler, command):
    peer = socket.create_connection(("127.0.0.1", command["port"]))
    return {"culprits": [party(threading.main_thread())]}, lambda: peer.sendall(bytes(64 << 20))


# Locks and the GIL. Each of these jobs reaches a transfer worker through its queue.


class Job:
    """Something else for a transfer worker to do."""

    def __init__(self, work):
        self.work = work

    def transfer(self, _manager, _sockets):
        self.work()


def call_with_gil_held():
    HOLDS_GIL.pause()


def gil_held_in_native_code(scheduler, _command):
    manager = scheduler.manager
    facts = {"culprits": [party(manager.workers[0])], "victims": [party(threading.main_thread())]}
    return facts, lambda: manager.queues[0].put(Job(call_with_gil_held))


def mutex():
    return ctypes.create_string_buffer(64)  # zeros are PTHREAD_MUTEX_INITIALIZER


def two_mutexes(scheduler, _command):
    manager = scheduler.manager
    first, second = scheduler.mutexes = mutex(), mutex()
    both = threading.Barrier(2)

    def lock_in_order(one, other):
        RELEASES_GIL.pthread_mutex_lock(one)
        both.wait()
        RELEASES_GIL.pthread_mutex_lock(other)

    def start():
        manager.queues[0].put(Job(lambda: lock_in_order(first, second)))
        manager.queues[1].put(Job(lambda: lock_in_order(second, first)))

    return {"culprits": [party(manager.workers[0]), party(manager.workers[1])]}, start


def gil_against_mutex(scheduler, _command):
    manager = scheduler.manager
    lock = mutex()
    scheduler.mutexes = (lock,)
    locked = threading.Event()

    def holds_mutex_wants_gil():
        RELEASES_GIL.pthread_mutex_lock(lock)
        locked.set()
        time.sleep(0.2)
        RELEASES_GIL.pthread_mutex_unlock(lock)

    def holds_gil_wants_mutex():
        locked.wait()
        HOLDS_GIL.pthread_mutex_lock(lock)

    def start():
        manager.queues[0].put(Job(holds_mutex_wants_gil))
        manager.queues[1].put(Job(holds_gil_wants_mutex))

    culprits = [party(manager.workers[0]), party(manager.workers[1])]
    return {"culprits": culprits, "victims": [party(threading.main_thread())]}, start


# The scheduler's own thread stands still.


def stuck(then):
    return {"culprits": [party(threading.main_thread())]}, then


def sleeps(_scheduler, _command):
    return stuck(lambda: time.sleep(1e6))


def waits_for_lock(scheduler, _command):
    scheduler.abandoned = threading.Lock()
    scheduler.abandoned.acquire()
    return stuck(scheduler.abandoned.acquire)


def reads_fifo(_scheduler, command):
    def read():
        with open(command["path"], "rb", buffering=0) as fifo:
            fifo.read(1)

    return stuck(read)


WEDGES = {
    "status": status,
    "malformed-message": malformed_message,
    "transfer-worker-dies": transfer_worker_dies,
    "blocked-send": blocked_send,
    "accept-and-never-read": accept_and_never_read,
    "blocked-tcp-send": blocked_tcp_send,
    "gil-held": gil_held_in_native_code,
    "two-mutexes": two_mutexes,
    "gil-against-mutex": gil_against_mutex,
    "sleeps": sleeps,
    "waits-for-lock": waits_for_lock,
    "reads-fifo": reads_fifo,
}
