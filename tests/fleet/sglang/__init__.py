"""A stand-in for SGLang's serving processes: same processes, threads, sockets, names and metrics; no model, no GPU.

It really serves: a prompt goes through a prefill half, its KV cache is handed to a decode half, tokens come back. Needs Python
3.8 or newer and pyzmq. Functions and threads carry the names that SGLang 0.5.23 gives them, since those are what a diagnosis
goes by; everything else is written for this fleet.
"""
