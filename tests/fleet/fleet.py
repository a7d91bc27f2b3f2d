"""The demo fleet: a small prefill/decode pair that really serves and can be wedged on command.

python3 tests/fleet/fleet.py start   [--gentle] [--backend nixl|mooncake] [--heartbeat S]
python3 tests/fleet/fleet.py request [--count N] [--concurrency N] [--timeout S]
python3 tests/fleet/fleet.py load    --seconds S [--concurrency N]
python3 tests/fleet/fleet.py wedge   NAME [--pending N]     (fleet.py wedges: the names)
python3 tests/fleet/fleet.py status
python3 tests/fleet/fleet.py stop
python3 tests/fleet/fleet.py hold    as start, in the foreground: prints `ready JSON`, ends with its stdin

Answers are JSON on stdout, progress is on stderr. Exit status: 0 as hoped, 1 not so, 2 a problem. --state DIR (default:
$INSPECTOR_FLEET_STATE, else target/fleet) tells fleets apart; several can run at once.

Needs Linux and Python 3.8 or newer; makes itself a virtual environment with pyzmq under target/venvs.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from control import client, holder, wedging  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    default = os.environ.get("INSPECTOR_FLEET_STATE") or HERE.parents[1] / "target" / "fleet"
    parser.add_argument("--state", type=Path, default=Path(default))
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("start", "hold"):
        command = commands.add_parser(name)
        command.add_argument("--gentle", action="store_true", help="schedulers sleep 2 ms a turn instead of spinning")
        command.add_argument("--backend", choices=["nixl", "mooncake"], default="nixl")
        command.add_argument("--heartbeat", type=float, default=5.0, help="seconds between decode's looks at prefill")
    request = commands.add_parser("request")
    request.add_argument("--count", type=int, default=1)
    load = commands.add_parser("load")
    load.add_argument("--seconds", type=float, required=True)
    for command in (request, load):
        command.add_argument("--concurrency", type=int, default=1)
        command.add_argument("--timeout", type=float, default=30.0)
    wedge = commands.add_parser("wedge")
    wedge.add_argument("name", choices=sorted(wedging.WEDGES))
    wedge.add_argument("--pending", type=int, default=4, help="requests to leave hanging afterwards")
    for name in ("status", "stop", "wedges"):
        commands.add_parser(name)
    return parser.parse_args()


def run(arguments):
    command = arguments.command
    if command == "hold":
        return holder.hold(arguments)
    if command == "start":
        return 0, holder.start(arguments)
    if command == "stop":
        return 0, holder.stop(arguments.state)
    if command == "wedges":
        return 0, {name: wedge.family for name, wedge in sorted(wedging.WEDGES.items())}
    state = holder.load_state(arguments.state)
    if command == "status":
        return 0, wedging.status(state)
    if command == "wedge":
        facts = wedging.wedge(state, arguments.name, arguments.pending)
        facts["fleet"] = holder.load_state(arguments.state)  # a wedge can replace processes
        return (0 if facts["wedged"] else 1), facts
    if command == "request":
        outcome = client.run(state, arguments.concurrency, arguments.timeout, count=arguments.count)
    else:
        outcome = client.run(state, arguments.concurrency, arguments.timeout, until=time.monotonic() + arguments.seconds)
    return (0 if not outcome["failed"] else 1), outcome


def main():
    try:
        status, answer = run(parse_arguments())
    except (OSError, RuntimeError, ValueError) as error:
        sys.stderr.write("fleet: %s\n" % error)
        return 2
    if answer is not None:
        print(json.dumps(answer, indent=2))
    return status


if __name__ == "__main__":
    sys.exit(main())
