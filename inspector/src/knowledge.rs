//! What is known of serving engines: `knowledge/*.toml`, embedded, and the user's own files.
