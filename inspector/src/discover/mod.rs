//! Processes to workers: engine, role, rank, GPUs, ports, parent, start time.
