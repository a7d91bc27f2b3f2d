"""A minimal HTTP/1.1 server on asyncio."""

import asyncio
import json


class Disconnected(Exception):
    """The client went away before its answer."""


async def serve(host, port, routes):
    """Serve `routes`: (method, path) -> async function(body, gone) -> (status, text or JSON value)."""

    async def connection(reader, writer):
        try:
            while True:
                line = await reader.readline()
                if not line.strip():
                    return
                method, path, _ = line.decode("latin-1").split(" ", 2)
                length = 0
                while True:
                    header = await reader.readline()
                    if header in (b"\r\n", b"\n", b""):
                        break
                    name, _, value = header.decode("latin-1").partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                body = await reader.readexactly(length)
                status, answer = await respond(routes, method, path.partition("?")[0], body, reader)
                text = answer if isinstance(answer, str) else json.dumps(answer)
                payload = text.encode()
                writer.write(b"HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n" % (status, len(payload)) + payload)
                await writer.drain()
        except (Disconnected, ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connection, host, port)


async def respond(routes, method, path, body, reader):
    handler = routes.get((method, path))
    if handler is None:
        return 404, {"error": "no such path"}
    work = asyncio.ensure_future(handler(json.loads(body) if body else None))
    # The client sends nothing more before its answer: the end of its stream means that it gave up.
    gone = asyncio.ensure_future(reader.read(1))
    done, _ = await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    if work not in done:
        work.cancel()
        raise Disconnected()
    gone.cancel()
    try:
        await gone
    except asyncio.CancelledError:
        pass
    return work.result()
