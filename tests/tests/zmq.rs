//! ZeroMQ between two processes: from the thread that waits to the process at the other end, and to what its threads do.

use std::process::Command;

use anyhow::{Context as _, Result};
use inspector_tests::{Fixture, Inspector, paths, procfs, python};
use serde_json::{Value, json};

/// The wait of the near thread, the far process and its thread.
struct Pair {
    _fixture: Fixture,
    wait: Value,
    far: Value,
    far_tid: Value,
}

impl Pair {
    /// `transport` is bound to, `near` and `far` are what the two do.
    fn start(transport: &str, near: &str, far: &str, both: bool) -> Result<Self> {
        let venv = python::venv(&python::system(), &["pyzmq==27.1.0"])?;
        let mut command = Command::new(venv);
        command.arg(paths::fixtures().join("waits/zmq_pair.py")).args([transport, near, far]);
        let (fixture, facts) = Fixture::ready(command)?;
        let id = |fact: &Value| fact.as_u64().and_then(|id| u32::try_from(id).ok()).context("an id");
        let (tid, owner) = (id(&facts["near"]["tid"])?, id(&facts["near"]["owner"])?);
        procfs::wait_blocked(fixture.pid(), tid)?;
        procfs::wait_blocked(owner, id(&facts["far"]["tid"])?)?;
        let pids = if both { vec![fixture.pid(), owner] } else { vec![fixture.pid()] };
        let document = Inspector::json("dump", &pids).document()?;
        let thread = document.thread(fixture.pid(), tid)?;
        assert_eq!(thread["libraries"], json!(["zeromq"]), "{thread:#}");
        let wait = thread["wait"].clone();
        Ok(Self { wait, far: json!(owner), far_tid: facts["far"]["tid"].clone(), _fixture: fixture })
    }

    fn text(&self) -> Result<&str> {
        self.wait["text"].as_str().context("it has a text")
    }

    /// The far process is the only owner, and never a proven one.
    fn leads_to_far(&self, kind: &str) {
        assert_eq!(self.wait["kind"], kind, "{:#}", self.wait);
        let owners = self.wait["owners"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(owners.len(), 1, "{:#}", self.wait);
        assert_eq!(owners[0]["pid"], self.far, "{:#}", self.wait);
        assert_eq!(owners[0]["certainty"], "likely", "{:#}", self.wait);
        assert!(owners[0]["evidence"].as_str().is_some_and(|text| text.contains("sock_diag")), "{owners:#?}");
        assert_eq!(self.wait["open_ended"], true, "{:#}", self.wait);
    }
}

#[test]
fn a_receive_leads_to_the_process_that_does_not_send() -> Result<()> {
    let pair = Pair::start("tcp://127.0.0.1:*", "recv", "sleep", true)?;
    pair.leads_to_far("socket-recv");
    let text = pair.text()?;
    assert!(text.starts_with("zmq recv: endpoints tcp 127.0.0.1:"), "{text}");
    assert!(text.contains(", through I/O thread "), "{text}");
    let nobody = format!("at the other end pid {}: none of its threads waits in a ZeroMQ call", pair.far);
    assert!(text.contains(&nobody), "{text}");
    Ok(())
}

#[test]
fn a_receive_from_one_who_receives_names_its_thread() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let pair = Pair::start(&format!("ipc://{}/pair", folder.path().display()), "recv", "recv", true)?;
    pair.leads_to_far("socket-recv");
    let text = pair.text()?;
    assert!(text.contains(&format!("pid {}: tid {} in zmq recv", pair.far, pair.far_tid)), "{text}");
    Ok(())
}

#[test]
fn a_send_leads_to_the_process_that_reads_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for transport in [format!("ipc://{}/pair", folder.path().display()), "tcp://127.0.0.1:*".to_owned()] {
        let pair = Pair::start(&transport, "send", "sleep", false)?;
        pair.leads_to_far("socket-send");
        let text = pair.text()?;
        assert!(text.starts_with("zmq send: bytes wait on endpoint "), "{text}");
        assert!(text.contains("whose threads were not looked at"), "{text}");
    }
    Ok(())
}
