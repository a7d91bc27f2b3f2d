"""One half of the pair: the HTTP process, which starts the scheduler and the detokenizer and waits for their answers."""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import threading

import zmq
import zmq.asyncio

from . import web
from .bootstrap import CommonKVBootstrapServer
from .process import die_with_parent, ipc, setting, start_thread


class SubprocessWatchdog:
    """Ends the whole half when a child dies, as SGLang does."""

    def __init__(self, children):
        self.children = children
        self.stop = threading.Event()
        start_thread(self._monitor_loop, name="subprocess-watchdog")

    def _monitor_loop(self):
        while not self.stop.wait(1.0):
            if any(child.poll() is not None for child in self.children):
                sys.stderr.write("a child process died: shutting down\n")
                os.kill(os.getpid(), signal.SIGQUIT)


class TokenizerManager:
    def __init__(self, arguments):
        self.arguments = arguments
        context = zmq.asyncio.Context()
        self.recv = context.socket(zmq.PULL)
        self.recv.setsockopt(zmq.RCVHWM, 0)
        self.recv.bind(ipc("tokenizer"))
        self.send_to_scheduler = context.socket(zmq.PUSH)
        self.send_to_scheduler.setsockopt(zmq.SNDHWM, 0)
        self.send_to_scheduler.connect(ipc("scheduler"))
        self.waiting = {}
        self.metrics = {}
        self.number = 0
        self.ready = asyncio.Event()
        self.last_answer = asyncio.Event()

    async def handle_loop(self):
        while True:
            message = await self.recv.recv_pyobj()
            if "metrics" in message:
                self.metrics = message["metrics"]
                self.ready.set()
                continue
            self.last_answer.set()
            future = self.waiting.get(message["rid"])
            if future is not None and not future.done():
                future.set_result(message)

    async def round_trip(self, request):
        self.number += 1
        rid = "%s-%d" % (self.arguments.disaggregation_mode, self.number)
        future = self.waiting[rid] = asyncio.get_running_loop().create_future()
        try:
            await self.send_to_scheduler.send_pyobj(dict(request, rid=rid))
            return await future
        except asyncio.CancelledError:
            await self.send_to_scheduler.send_pyobj({"abort": rid})
            raise
        finally:
            del self.waiting[rid]

    async def generate(self, body):
        answer = await self.round_trip(dict(body, type="generate"))
        return (500 if "error" in answer else 200), answer

    async def health(self, _body):
        if not self.ready.is_set():
            return 503, {"status": "starting"}
        if os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1") == "0":
            return 200, {"status": "ok"}
        # Any message from the detokenizer counts, as in SGLang: it does not prove that KV caches move.
        self.last_answer.clear()
        probe = asyncio.ensure_future(self.round_trip({"type": "health"}))
        try:
            await asyncio.wait_for(self.last_answer.wait(), setting("SGLANG_HEALTH_CHECK_TIMEOUT", 20))
        except asyncio.TimeoutError:
            return 503, {"error": "couldn't get a response from detokenizer"}
        finally:
            probe.cancel()
        return 200, {"status": "ok"}

    async def show_metrics(self, _body):
        labels = 'model_name="%s",engine_type="%s",tp_rank="0",pp_rank="0"' % (
            self.arguments.model_path,
            self.arguments.disaggregation_mode,
        )
        return 200, "".join("sglang:%s{%s} %s\n" % (name, labels, value) for name, value in sorted(self.metrics.items()))

    async def serve(self):
        routes = {
            ("POST", "/generate"): self.generate,
            ("GET", "/health"): self.health,
            ("GET", "/metrics"): self.show_metrics,
        }
        server = await web.serve(self.arguments.host, self.arguments.port, routes)
        handle = asyncio.ensure_future(self.handle_loop())
        async with server:
            await asyncio.gather(handle, server.serve_forever())


def parse_arguments():
    parser = argparse.ArgumentParser(prog="sglang.launch_server")
    parser.add_argument("--model-path", default="demo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--disaggregation-mode", choices=["prefill", "decode"], required=True)
    parser.add_argument("--disaggregation-transfer-backend", choices=["nixl", "mooncake"], default="nixl")
    parser.add_argument("--disaggregation-bootstrap-port", type=int, default=8998)
    parser.add_argument("--disable-overlap-schedule", action="store_true")
    return parser.parse_args()


async def run(arguments):
    await TokenizerManager(arguments).serve()


def main():
    die_with_parent()
    arguments = parse_arguments()
    if arguments.disaggregation_mode == "prefill":
        CommonKVBootstrapServer(arguments.disaggregation_bootstrap_port)
    scheduler = [
        sys.executable,
        "-m",
        "sglang.scheduler",
        arguments.disaggregation_mode,
        arguments.disaggregation_transfer_backend,
        str(arguments.disaggregation_bootstrap_port),
    ]
    children = [subprocess.Popen(scheduler), subprocess.Popen([sys.executable, "-m", "sglang.detokenizer"])]
    SubprocessWatchdog(children)
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
