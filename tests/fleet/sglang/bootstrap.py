"""The bootstrap server in the prefill half's HTTP process: where decode learns how to reach prefill's ranks."""

import asyncio
import uuid

from . import web
from .process import start_thread


class CommonKVBootstrapServer:
    def __init__(self, port):
        self.port = port
        self.instance = uuid.uuid4().hex
        self.ranks = {}
        self.thread = start_thread(self._run_server)

    def _run_server(self):
        asyncio.run(self._serve())

    async def _serve(self):
        routes = {("GET", "/health"): self._health, ("GET", "/route"): self._route, ("PUT", "/route"): self._register}
        server = await web.serve("127.0.0.1", self.port, routes)
        async with server:
            await server.serve_forever()

    async def _health(self, _body):
        return 200, {"instance": self.instance}

    async def _route(self, _body):
        if not self.ranks:
            return 404, {"error": "no rank has registered"}
        return 200, dict(self.ranks, instance=self.instance)

    async def _register(self, body):
        self.ranks.update(body)
        return 200, {}
