"""The prefill half's scheduler and its side of the KV transfer."""

import collections
import http.client
import json
import threading

import zmq

from . import kv
from .process import start_thread
from .scheduler import Scheduler

TRANSFER_WORKERS = 4


class FastQueue:
    def __init__(self):
        self._buffer = collections.deque()
        self._condition = threading.Condition()

    def put(self, item):
        with self._condition:
            self._buffer.append(item)
            self._condition.notify()

    def get(self):
        with self._condition:
            while not self._buffer:
                self._condition.wait()
            return self._buffer.popleft()


class KVChunks:
    """The KV cache of one request on its way to a decode rank."""

    def __init__(self, room, endpoint, cache, done):
        self.room, self.endpoint, self.cache, self.done = room, endpoint, cache, done

    def transfer(self, manager, sockets):
        target = sockets.get(self.endpoint)
        if target is None:
            target = sockets[self.endpoint] = manager.context.socket(zmq.PUSH)
            target.setsockopt(zmq.SNDHWM, 0)
            target.connect(self.endpoint)
        size = len(self.cache) // kv.CHUNKS
        room = b"%d" % self.room
        for start in range(0, len(self.cache), size):
            target.send_multipart([b"KV", room, self.cache[start : start + size]])
        target.send_multipart([b"STATUS", room, b"Success"])
        self.done.add(self.room)


class PrefillKVManager:
    def __init__(self, context, backend, bootstrap_port):
        self.context = context
        self.metadata = {}  # room -> endpoint of the decode rank that wants it
        self.done = set()
        self.queues = [FastQueue() for _ in range(TRANSFER_WORKERS)]
        self.rank_socket = context.socket(zmq.PULL)
        self.rank_socket.setsockopt(zmq.RCVHWM, 0)
        self.rank_port = self.rank_socket.bind_to_random_port("tcp://127.0.0.1")
        self.workers = [start_thread(self.transfer_worker, queue) for queue in self.queues]
        self.listener = start_thread(self.bootstrap_thread_guarded if backend == "nixl" else self.bootstrap_thread)
        self._register_to_bootstrap(bootstrap_port)

    def _register_to_bootstrap(self, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("PUT", "/route", json.dumps({"endpoint": "tcp://127.0.0.1:%d" % self.rank_port}))
        connection.getresponse().read()
        connection.close()

    def transfer_worker(self, queue):
        sockets = {}
        while True:
            chunks = queue.get()
            chunks.transfer(self, sockets)

    def bootstrap_thread_guarded(self):
        self.bootstrap_thread()

    def bootstrap_thread(self):
        while True:
            room, endpoint = self.rank_socket.recv_multipart()
            self.metadata[int(room)] = endpoint.decode()


class PrefillScheduler(Scheduler):
    def __init__(self, backend, bootstrap_port):
        super().__init__("prefill")
        self.manager = PrefillKVManager(self.context, backend, bootstrap_port)
        self.bootstrapping = {}
        self.inflight = {}

    def event_loop_normal_disagg_prefill(self):
        while True:
            self.process_input_requests(self.recv_requests())
            self.process_bootstrap_queue()
            self.process_disagg_prefill_inflight_queue()
            self.publish_metrics()
            self.obey()
            self.on_idle()

    def admit(self, request):
        self.bootstrapping[request["bootstrap_room"]] = request

    def abort(self, rid):
        for queue in (self.bootstrapping, self.inflight):
            for room, request in list(queue.items()):
                if request["rid"] == rid:
                    del queue[room]
                    self.counters["num_transfer_failed_reqs_total"] += 1
                    return True
        return False

    def process_bootstrap_queue(self):
        for room in list(self.bootstrapping):
            endpoint = self.manager.metadata.pop(room, None)
            if endpoint is None:
                continue
            request = self.inflight[room] = self.bootstrapping.pop(room)
            cache = kv.prefill(request["text"])
            self.counters["prompt_tokens_total"] += len(request["text"].split())
            self.manager.queues[room % TRANSFER_WORKERS].put(KVChunks(room, endpoint, cache, self.manager.done))

    def process_disagg_prefill_inflight_queue(self):
        for room in list(self.inflight):
            if room in self.manager.done:
                self.manager.done.discard(room)
                self.answer(self.inflight.pop(room), tokens=[])

    def gauges(self):
        return {
            "num_running_reqs": 0,
            "num_queue_reqs": 0,
            "num_prefill_bootstrap_queue_reqs": len(self.bootstrapping),
            "num_prefill_inflight_queue_reqs": len(self.inflight),
            "token_usage": 0.01,
        }
