//! Hypotheses, each a file: what supports it, what contradicts it, what would settle it. Pure.
