//! Pythons that inspector's own reader does not know: the second engine reads them, and the report says so.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use inspector::model::{Frame, FrameKind, report::ThreadReport};
use inspector_tests::{Fixture, Inspector, paths, python::old};
use serde_json::Value;

#[test]
fn frames_and_lines_are_what_the_process_says_and_the_engine_is_named() -> Result<()> {
    for (version, python) in old()? {
        let mut command = Command::new(python);
        command.arg(paths::root().join("tests/fixtures/python/old.py"));
        let (fixture, facts) = Fixture::ready(command)?;
        let pid = fixture.pid();
        let document = Inspector::json("dump", &[pid]).document()?;
        // The thread that told the facts is the third.
        let threads: Vec<_> = document.report.threads.iter().filter(|thread| thread.pid == pid).collect();
        assert_eq!(threads.len(), 3, "{version}");
        for name in ["main", "worker"] {
            let truth: Vec<(String, String, u32)> =
                serde_json::from_value(facts.get(name).cloned().unwrap_or(Value::Null))?;
            let lines = |thread: &ThreadReport| -> Vec<(String, String, u32)> {
                let frames = thread.frames.iter().filter(|frame| frame.kind == FrameKind::Python);
                let line =
                    |frame: &Arc<Frame>| Some((frame.function.clone(), frame.file.clone()?, frame.line?));
                frames.filter_map(line).collect()
            };
            let thread = threads
                .iter()
                .find(|thread| (thread.tid == pid) == (name == "main") && lines(thread) == truth)
                .with_context(|| format!("{version}: no thread like {name}, {truth:?}: {threads:?}"))?;
            // Python 2.7 has no names that py-spy finds: the thread keeps its comm.
            if version != "2.7" && name == "worker" {
                assert_eq!(thread.name, "worker", "{version}");
            }
        }
        let gap = document.report.gaps.iter().find(|gap| gap.source == "python" && gap.pid == Some(pid));
        let reason = &gap.with_context(|| format!("{version}: no gap names the engine"))?.reason;
        assert!(reason.starts_with("read by py-spy"), "{version}: {reason}");
    }
    Ok(())
}
