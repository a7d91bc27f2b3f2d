"""The scheduler process: what both halves have in common, and the program that runs one of them."""

import json
import socket
import sys
import time

import zmq

from . import wedges
from .process import address, die_with_parent, ipc, set_title, setting, start_thread

PUBLISH_EVERY_S = 0.2


class WatchdogRaw:
    """Fires when a batch does not finish; sleeps most of the time."""

    def __init__(self, timeout):
        self.timeout = timeout
        start_thread(self._watchdog_thread)

    def _watchdog_thread(self):
        while True:
            self._watchdog_once()

    def _watchdog_once(self):
        time.sleep(self.timeout / 2)


class Scheduler:
    """Receives requests without blocking, sends tokens to the detokenizer, publishes metrics, obeys the test's control socket."""

    def __init__(self, mode):
        self.mode = mode
        self.context = zmq.Context()
        self.recv_from_tokenizer = self.context.socket(zmq.PULL)
        self.recv_from_tokenizer.setsockopt(zmq.RCVHWM, 0)
        self.recv_from_tokenizer.bind(ipc("scheduler"))
        self.send_to_detokenizer = self.context.socket(zmq.PUSH)
        self.send_to_detokenizer.setsockopt(zmq.SNDHWM, 0)
        self.send_to_detokenizer.connect(ipc("detokenizer"))
        # Polled by the event loop: a thread of its own would not be there in the real engine.
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control.bind("\0" + address("control"))
        self.control.setblocking(False)
        self.idle_s = setting("FLEET_IDLE_MS", 0) / 1000
        self.counters = {
            "num_aborted_requests_total": 0,
            "num_transfer_failed_reqs_total": 0,
            "num_bootstrap_failed_reqs_total": 0,
            "prompt_tokens_total": 0,
            "generation_tokens_total": 0,
            "scheduler_idle_seconds_total": 0.0,
        }
        self.published = 0.0
        WatchdogRaw(setting("SGLANG_WATCHDOG_TIMEOUT", 300))
        # The real engine's second thread ends during start-up as well: a gap in the numbers is no sign of a death.
        start_thread(self.load_weights).join()

    def load_weights(self):
        time.sleep(0.01)

    def recv_requests(self):
        requests = []
        while True:
            try:
                requests.append(self.recv_from_tokenizer.recv_pyobj(zmq.NOBLOCK))
            except zmq.ZMQError:
                return requests

    def process_input_requests(self, requests):
        for request in requests:
            if "abort" in request:
                if self.abort(request["abort"]):
                    self.counters["num_aborted_requests_total"] += 1
            elif request["type"] == "health":
                self.send_to_detokenizer.send_pyobj({"rid": request["rid"], "tokens": [0]})
            else:
                self.admit(request)

    def answer(self, request, **fields):
        self.send_to_detokenizer.send_pyobj(dict(fields, rid=request["rid"]))

    def publish_metrics(self):
        now = time.monotonic()
        if now - self.published >= PUBLISH_EVERY_S:
            self.published = now
            self.send_to_detokenizer.send_pyobj({"metrics": dict(self.counters, **self.gauges())})

    def obey(self):
        try:
            text, sender = self.control.recvfrom(4096)
        except BlockingIOError:
            return
        command = json.loads(text)
        facts, then = wedges.prepare(self, command)
        self.control.sendto(json.dumps(facts).encode(), sender)
        then()

    def on_idle(self):
        self.counters["scheduler_idle_seconds_total"] += self.idle_s
        time.sleep(self.idle_s)


def main():
    die_with_parent()
    mode, backend, bootstrap_port = sys.argv[1:]
    set_title("sglang::scheduler_TP0")
    # Imported here: each half knows only itself.
    if mode == "prefill":
        from .prefill import PrefillScheduler

        PrefillScheduler(backend, int(bootstrap_port)).event_loop_normal_disagg_prefill()
    else:
        from .decode import DecodeScheduler

        DecodeScheduler(backend, int(bootstrap_port)).event_loop_normal_disagg_decode()


if __name__ == "__main__":
    main()
