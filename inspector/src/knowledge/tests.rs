use std::sync::Arc;

use super::*;
use crate::model::{Frame, FrameKind, Wait, WaitKind, Worker};

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

fn frame(function: &str) -> Arc<Frame> {
    let (file, line, module, address) = (None, None, None, None);
    Arc::new(Frame { kind: FrameKind::Python, function: function.into(), file, line, module, address })
}

fn kind_of(knowledge: &Knowledge, command: &str) -> Option<(String, String)> {
    knowledge
        .process_rule(&words(command), "python")
        .map(|(file, rule)| (file.name.clone(), rule.kind.clone()))
}

#[test]
fn builtin_files_parse_and_have_names_of_their_own() {
    let knowledge = Knowledge::builtin();
    let mut names: Vec<_> = knowledge.files().iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), BUILTIN.len());
}

#[test]
fn every_family_that_is_diagnosed_has_a_general_action() {
    let knowledge = Knowledge::builtin();
    for family in [
        Family::ThreadDied,
        Family::BlockedSend,
        Family::GilStarvation,
        Family::DeadlockCycle,
        Family::PeerStopped,
        Family::SchedulerStuck,
    ] {
        assert!(knowledge.action(family, None, None).is_some(), "{family:?}");
    }
    let of_sglang = knowledge.action(Family::ThreadDied, Some("sglang"), Some("decode-listener"));
    assert_ne!(of_sglang, knowledge.action(Family::ThreadDied, None, None));
}

#[test]
fn titles_and_command_lines_are_recognised() {
    let knowledge = Knowledge::builtin();
    let cases = [
        ("sglang::scheduler_DP0_TP3", Some(("sglang", "scheduler"))),
        ("sglang::detokenizer", Some(("sglang", "detokenizer"))),
        ("/v/bin/python -m sglang.launch_server --port 1", Some(("sglang", "http"))),
        ("python3 -u -m sglang.launch_server", Some(("sglang", "http"))),
        ("/v/bin/python /v/bin/vllm serve /m --port 8101", Some(("vllm", "api-server"))),
        ("VLLM::EngineCore_DP1", Some(("vllm", "engine-core"))),
        ("VLLM::Worker_TP1", Some(("vllm", "worker"))),
        ("python -m dynamo.sglang --disaggregation-mode decode", Some(("dynamo", "sglang-parent"))),
        ("/usr/bin/python3.11 x.py", Some(("python", "python"))),
        ("grep sglang.launch_server", None),
        ("bash -c python -m sglang.launch_server", None),
        ("vim sglang/launch_server.py", None),
    ];
    for (command, expected) in cases {
        let expected = expected.map(|(engine, kind)| (engine.to_owned(), kind.to_owned()));
        assert_eq!(kind_of(&knowledge, command), expected, "{command}");
    }
    let (_, rule) = knowledge.process_rule(&words("sglang::scheduler_DP0_TP3"), "").unwrap();
    assert_eq!(rank(rule, &words("sglang::scheduler_DP0_TP3")).as_deref(), Some("DP0_TP3"));
    let unreadable = knowledge.process_rule(&[], "sglang::schedul").unwrap();
    assert_eq!(unreadable.1.kind, "scheduler");
}

#[test]
fn flags_give_role_and_backend() {
    let knowledge = Knowledge::builtin();
    let none = |_: &str| None;
    let sglang = knowledge.file("sglang").unwrap();
    let flags = words("python -m sglang.launch_server --disaggregation-mode=decode --port 1");
    assert_eq!(sglang.setting(Sets::Role, &flags, none, None).as_deref(), Some("decode"));
    assert_eq!(sglang.setting(Sets::Backend, &flags, none, Some("decode")).as_deref(), Some("mooncake"));
    assert_eq!(sglang.setting(Sets::Role, &words("python"), none, None).as_deref(), Some("unified"));
    assert_eq!(sglang.setting(Sets::Backend, &words("python"), none, Some("unified")), None);
    let vllm = knowledge.file("vllm").unwrap();
    let config = |role: &str| {
        let json = format!("{{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"{role}\"}}");
        vec!["vllm".to_owned(), "--kv-transfer-config".to_owned(), json]
    };
    assert_eq!(vllm.setting(Sets::Role, &config("kv_producer"), none, None).as_deref(), Some("prefill"));
    assert_eq!(vllm.setting(Sets::Role, &config("kv_both"), none, None), None);
    assert_eq!(vllm.setting(Sets::Backend, &config("kv_both"), none, None).as_deref(), Some("nixl"));
    assert_eq!(vllm.setting(Sets::Role, &words("vllm --kv-transfer-config {broken"), none, None), None);
    assert_eq!(vllm.setting(Sets::Role, &words("vllm --kv-transfer-config"), none, None), None);
}

#[test]
fn threads_are_known_by_name_and_on_old_pythons_by_function() {
    let knowledge = Knowledge::builtin();
    let worker = Worker { engine: "sglang".into(), kind: "scheduler".into(), ..Worker::default() };
    let role = |name: Option<&str>, comm: &str, frames: &[Arc<Frame>]| {
        knowledge.thread_rule(Some(&worker), name, comm, frames).map(|rule| rule.role.as_str())
    };
    assert_eq!(role(Some("Thread-3 (transfer_worker)"), "python", &[]), Some("transfer-worker"));
    let stack = [frame("Condition.wait"), frame("FastQueue.get"), frame("NixlKVManager.transfer_worker")];
    assert_eq!(role(Some("Thread-3"), "python", &stack), Some("transfer-worker"));
    assert_eq!(role(Some("mine"), "python", &stack), None);
    assert_eq!(role(None, "ZMQbg/IO/0", &[]), Some("zmq-io"));
    assert_eq!(role(Some("MainThread"), "python", &[]), Some("scheduler-loop"));
}

#[test]
fn idle_states_ask_for_frames_wait_and_deadline() {
    let knowledge = Knowledge::builtin();
    let worker = Worker { engine: "sglang".into(), kind: "scheduler".into(), ..Worker::default() };
    let stack = [frame("Condition.wait"), frame("FastQueue.get"), frame("NixlKVManager.transfer_worker")];
    let rule = knowledge.thread_rule(Some(&worker), Some("Thread-3 (transfer_worker)"), "", &stack);
    let wait = Wait { kind: WaitKind::PythonLock, ..Wait::default() };
    assert!(knowledge.is_idle(Some(&worker), rule, &wait, &stack));
    let sending = [frame("send_multipart"), frame("NixlKVManager.transfer_worker")];
    let send = Wait { kind: WaitKind::SocketSend, ..Wait::default() };
    assert!(!knowledge.is_idle(Some(&worker), rule, &send, &sending));
    // A queue's `get` is idle in a helper and not in the scheduler loop.
    let scheduler = knowledge.thread_rule(Some(&worker), Some("MainThread"), "", &stack);
    assert!(!knowledge.is_idle(Some(&worker), scheduler, &wait, &stack[..2]));
    assert!(knowledge.is_idle(Some(&worker), None, &wait, &stack[..2]));
}

#[test]
fn errors_name_the_line() {
    let check = |text: &str| parse(Path::new("my.toml"), text).unwrap_err().to_string();
    let head = "name = \"x\"\nabout = \"\"\nread-from = []\n";
    assert!(check(&format!("{head}[[process]]\nkind = \"a\"\ncommand = '('\n")).starts_with("my.toml:6: "));
    assert!(check(&format!("{head}[[process]]\nkind = \"a\"\ncolour = 1\n")).starts_with("my.toml:6: "));
    let reference = check(&format!("{head}[[thread]]\nrole = \"r\"\nname = 'a'\nkinds = [\"b\"]\n"));
    assert!(reference.starts_with("my.toml:7: no [[process]]"), "{reference}");
    assert!(check("name = \"a b\"\nabout = \"\"\nread-from = []\n").contains("`name`"));
    assert!(check(&format!("{head}[[process]]\nkind = \"a\"\n")).contains("needs `command` or `comm`"));
    let huge = check(&format!("{head}[[thread]]\nrole = \"r\"\nname = '((a{{900}}){{900}}){{900}}'\n"));
    assert!(huge.contains("regular expression"), "{huge}");
}

#[test]
fn a_folder_adds_and_replaces_files() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"sglang\"\nabout = \"mine\"\nread-from = []\nenvironment = [\"MINE\", \"ALL_*\"]\n";
    fs::write(folder.path().join("a.toml"), text).unwrap();
    fs::write(folder.path().join("ignored.txt"), "(").unwrap();
    let knowledge = Knowledge::load(folder.path()).unwrap();
    assert_eq!(knowledge.file("sglang").unwrap().about, "mine");
    assert_eq!(knowledge.files().len(), BUILTIN.len());
    assert!(
        knowledge.keeps_variable("MINE")
            && knowledge.keeps_variable("ALL_OF")
            && !knowledge.keeps_variable("MINED")
    );
    fs::write(folder.path().join("b.toml"), "name =").unwrap();
    assert!(Knowledge::load(folder.path()).unwrap_err().to_string().contains("b.toml:1: "));
    assert!(Knowledge::load(&folder.path().join("none")).is_err());
}

#[test]
fn native_libraries_are_named_innermost_first() {
    let knowledge = Knowledge::builtin();
    let native = |function: &str| Arc::new(Frame { kind: FrameKind::Native, ..(*frame(function)).clone() });
    let stack = |functions: &[&str]| -> Vec<Arc<Frame>> { functions.iter().map(|f| native(f)).collect() };
    let nixl =
        stack(&["epoll_wait", "ucs_event_set_wait", "ucp_worker_progress", "nixlUcxEngine::progressFunc()"]);
    assert_eq!(knowledge.libraries(&nixl), ["ucx", "nixl"]);
    assert_eq!(knowledge.libraries(&stack(&["mooncake::TransferEngine::submit", "main"])), ["mooncake"]);
    let gloo = stack(&[
        "pthread_cond_wait",
        "gloo::transport::tcp::UnboundBuffer::waitRecv",
        "c10d::ProcessGroupGloo::runLoop",
    ]);
    assert_eq!(knowledge.libraries(&gloo), ["gloo", "c10d"]);
    // A Python function of that name is none of theirs.
    assert!(knowledge.libraries(&[frame("zmq_poll")]).is_empty());
}
