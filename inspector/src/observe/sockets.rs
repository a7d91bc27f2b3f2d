//! Sockets by `sock_diag`, in every network namespace involved.
