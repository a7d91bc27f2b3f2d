//! Open descriptors from `/proc/PID/fd` and `fdinfo`.
