"""Sends requests through both halves, as the router of a real deployment does, and checks the answers."""

import http.client
import itertools
import json
import random
import sys
import threading
import time

from sglang import kv

TOKENS = 8


def post(port, path, body, timeout):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def get(port, path, timeout=5):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def generate(state, number, timeout):
    """One request; None when its answer is right, else what went wrong."""
    prompt = "tell me again about request %d" % number
    body = {"text": prompt, "max_new_tokens": TOKENS, "bootstrap_room": random.randrange(1 << 40) * 4 + number % 4}
    problems = []

    def half(role):
        try:
            status, answer = post(state[role]["port"], "/generate", body, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            problems.append("%s: %s" % (role, str(error) or type(error).__name__))
            return
        if status != 200:
            problems.append("%s answered %d: %s" % (role, status, answer.get("error")))
        elif role == "decode" and answer.get("text") != kv.answer(prompt, TOKENS):
            problems.append("decode answered wrongly: %r" % answer.get("text"))

    prefill = threading.Thread(target=half, args=("prefill",))
    prefill.start()
    half("decode")
    prefill.join()
    return "; ".join(sorted(problems)) or None


def run(state, concurrency, timeout, count=None, until=None, started=None):
    """Send requests; gives how many went through and why others did not."""
    numbers = itertools.count() if count is None else iter(range(count))
    lock = threading.Lock()
    served, problems, seconds = [], [], []

    def client():
        while until is None or time.monotonic() < until:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            begin = time.monotonic()
            problem = generate(state, number, timeout)
            with lock:
                (problems if problem else served).append(problem)
                seconds.append(time.monotonic() - begin)

    threads = [threading.Thread(target=client) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    if started:
        started()
    for thread in threads:
        thread.join()
    median = sorted(seconds)[len(seconds) // 2] if seconds else None
    return {"served": len(served), "failed": len(problems), "median_s": median, "problems": sorted(set(problems))[:10]}


def main():
    """`python -m control.client STATE_FILE COUNT`: requests that are left waiting, one client each; a line for each that ends."""
    with open(sys.argv[1]) as file:
        state = json.load(file)

    def one(number):
        print(generate(state, number, 3600) or "served", flush=True)

    for number in range(int(sys.argv[2])):
        threading.Thread(target=one, args=(number,)).start()


if __name__ == "__main__":
    main()
