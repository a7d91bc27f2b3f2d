"""The detokenizer process: token numbers in, text out. Waits without a deadline when idle."""

import zmq

from . import kv
from .process import die_with_parent, ipc, set_title


class DetokenizerManager:
    def __init__(self):
        context = zmq.Context()
        self.recv_from_scheduler = context.socket(zmq.PULL)
        self.recv_from_scheduler.setsockopt(zmq.RCVHWM, 0)
        self.recv_from_scheduler.bind(ipc("detokenizer"))
        self.send_to_tokenizer = context.socket(zmq.PUSH)
        self.send_to_tokenizer.setsockopt(zmq.SNDHWM, 0)
        self.send_to_tokenizer.connect(ipc("tokenizer"))

    def event_loop(self):
        while True:
            message = self.recv_from_scheduler.recv_pyobj()
            if "tokens" in message:
                message["text"] = kv.text(message.pop("tokens"))
            self.send_to_tokenizer.send_pyobj(message)


def main():
    die_with_parent()
    set_title("sglang::detokenizer")
    DetokenizerManager().event_loop()


if __name__ == "__main__":
    main()
