"""The decode half's scheduler and its side of the KV transfer."""

import http.client
import json
import threading
import time

import zmq

from . import kv
from .process import setting, start_thread
from .scheduler import Scheduler


class Room:
    """One request's KV cache on its way in."""

    def __init__(self):
        self.cache = bytearray()
        self.status = None


class DecodeKVManager:
    def __init__(self, context, backend, bootstrap_port):
        self.context = context
        self.bootstrap_port = bootstrap_port
        self.rooms = {}
        self.prefill = None  # what the bootstrap server said: endpoint of prefill's rank, id of the instance
        self.sockets = {}
        self.locks = {}
        self.rank_socket = context.socket(zmq.PULL)
        self.rank_socket.setsockopt(zmq.RCVHWM, 0)
        self.rank_port = self.rank_socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = ("tcp://127.0.0.1:%d" % self.rank_port).encode()
        self.listener = start_thread(self.decode_listener_thread if backend == "nixl" else self.decode_thread)
        self.stop = threading.Event()
        self.heartbeat = start_thread(self.heartbeat_checker, name="HeartbeatChecker")

    def decode_listener_thread(self):
        self._receive()

    def decode_thread(self):
        self._receive()

    def _receive(self):
        while True:
            kind, room, payload = self.rank_socket.recv_multipart()
            entry = self.rooms.get(int(room))
            if entry is None:
                continue  # its client gave up
            if kind == b"KV":
                entry.cache += payload
            else:
                entry.status = payload.decode()

    def _ask_bootstrap(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.bootstrap_port, timeout=2)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = json.loads(response.read())
            if response.status != 200:
                raise OSError("the bootstrap server answered %d" % response.status)
            return body
        finally:
            connection.close()

    def try_ensure_parallel_info(self):
        if self.prefill is None:
            try:
                self.prefill = self._ask_bootstrap("/route")
            except (OSError, ValueError, http.client.HTTPException):
                return False
        return True

    def _connect(self, endpoint):
        if endpoint not in self.sockets:
            target = self.context.socket(zmq.PUSH)
            target.setsockopt(zmq.SNDHWM, 0)
            # A dead endpoint is not tried again, and nothing limits a send to it: SGLang between its changes 29570 and 31144.
            target.setsockopt(zmq.RECONNECT_IVL, -1)
            target.connect(endpoint)
            self.locks.setdefault(endpoint, threading.Lock())
            self.sockets[endpoint] = target
        return self.sockets[endpoint], self.locks[endpoint]

    def send_metadata(self, room):
        target, lock = self._connect(self.prefill["endpoint"])
        with lock:
            target.send_multipart([b"%d" % room, self.endpoint])

    def heartbeat_checker(self):
        interval = setting("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", 5)
        limit = setting("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", 2)
        failures = 0
        while not self.stop.wait(interval):
            known = self.prefill
            if known is None:
                continue
            try:
                same = self._ask_bootstrap("/health")["instance"] == known["instance"]
            except (OSError, ValueError, http.client.HTTPException):
                failures += 1
                same = failures < limit
            else:
                failures = 0
            if not same:
                failures = 0
                self._handle_node_failure(known)

    def _handle_node_failure(self, prefill):
        self.disconnect_endpoint(prefill["endpoint"])
        self.prefill = None

    def disconnect_endpoint(self, endpoint):
        with self.locks.get(endpoint, threading.Lock()):
            target = self.sockets.pop(endpoint, None)
            if target is not None:
                target.close(linger=0)


class DecodeScheduler(Scheduler):
    def __init__(self, backend, bootstrap_port):
        super().__init__("decode")
        self.manager = DecodeKVManager(self.context, backend, bootstrap_port)
        self.prealloc = []
        self.transfer = {}
        self.running = {}
        self.waiting_timeout_s = setting("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", 300)

    def event_loop_normal_disagg_decode(self):
        while True:
            self.process_input_requests(self.recv_requests())
            self.process_decode_queue()
            self.run_batch()
            self.publish_metrics()
            self.obey()
            self.on_idle()

    def admit(self, request):
        request["since"] = time.monotonic()
        self.prealloc.append(request)

    def abort(self, rid):
        for request in self.prealloc:
            if request["rid"] == rid:
                self.prealloc.remove(request)
                return True
        for queue in (self.transfer, self.running):
            for room, request in list(queue.items()):
                if request["rid"] == rid:
                    del queue[room]
                    self.manager.rooms.pop(room, None)
                    return True
        return False

    def process_decode_queue(self):
        self.pop_preallocated()
        self.pop_transferred()

    def pop_preallocated(self):
        while self.prealloc and self.manager.try_ensure_parallel_info():
            request = self.prealloc.pop(0)
            room = request["bootstrap_room"]
            self.manager.rooms[room] = Room()
            self.transfer[room] = request
            self.manager.send_metadata(room)

    def pop_transferred(self):
        now = time.monotonic()
        for room, request in list(self.transfer.items()):
            if self.manager.rooms[room].status == "Success":
                self.running[room] = self.transfer.pop(room)
                request["tokens"] = []
            elif now - request["since"] > self.waiting_timeout_s:
                del self.transfer[room], self.manager.rooms[room]
                self.counters["num_transfer_failed_reqs_total"] += 1
                self.answer(request, tokens=[], error="timed out in KVPoll.WaitingForInput")

    def run_batch(self):
        for room, request in list(self.running.items()):
            tokens = request["tokens"]
            tokens.append(kv.token(bytes(self.manager.rooms[room].cache), len(tokens)))
            self.counters["generation_tokens_total"] += 1
            if len(tokens) >= request["max_new_tokens"]:
                del self.running[room], self.manager.rooms[room]
                self.answer(request, tokens=tokens)

    def gauges(self):
        return {
            "num_running_reqs": len(self.running),
            "num_queue_reqs": 0,
            "num_decode_prealloc_queue_reqs": len(self.prealloc),
            "num_decode_transfer_queue_reqs": len(self.transfer),
            "token_usage": 0.01,
        }
