//! What goes wrong costs one clear sentence, the right exit status, and no other part of the report.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use inspector_tests::{Document, Finished, Fixture, Inspector, eventually, procfs, python};

fn idle() -> Result<Fixture> {
    let program = "import sys\nprint('ready', flush=True)\nsys.stdin.read()";
    let (fixture, _) = Fixture::program(&python::system(), &["-c", program])?;
    procfs::wait_blocked(fixture.pid(), fixture.pid())?;
    Ok(fixture)
}

/// Status 1, nothing on stdout, one line on stderr that contains every one of `words`.
fn assert_one_sentence(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code(), Some(1), "{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.stdout, "");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.starts_with("inspector: "), "{}", finished.stderr);
    for word in words {
        assert!(finished.stderr.contains(word), "{word} is not in: {}", finished.stderr);
    }
}

#[test]
fn a_pid_that_does_not_exist() -> Result<()> {
    let mut child = Command::new("true").spawn()?;
    let pid = child.id().to_string();
    child.wait()?;
    for command in ["ps", "dump", "diagnose"] {
        assert_one_sentence(&Inspector::new(&[command, "--pid", &pid]).run()?, &[&pid]);
    }
    Ok(())
}

#[test]
fn a_kernel_thread() -> Result<()> {
    // kthreadd; Documentation/admin-guide/initrd and kernel/kthread.c: always pid 2 in the first PID namespace.
    assert_eq!(procfs::comm(2, 2).as_deref(), Some("kthreadd"), "this test runs in the host's PID namespace");
    for command in ["ps", "dump", "diagnose"] {
        assert_one_sentence(&Inspector::new(&[command, "--pid", "2"]).run()?, &["2", "kernel thread"]);
    }
    Ok(())
}

#[test]
fn a_process_that_is_not_python() -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; exec sleep 1000"]);
    let (fixture, _) = Fixture::ready(command)?;
    eventually("sleep runs", || procfs::comm(fixture.pid(), fixture.pid()).filter(|comm| comm == "sleep"))?;
    procfs::wait_blocked(fixture.pid(), fixture.pid())?;
    let document = Inspector::json("dump", &[fixture.pid()]).document()?;
    let thread = document.thread(fixture.pid(), fixture.pid())?;
    assert_eq!(thread["wait"]["kind"], "sleep");
    assert_eq!(document.report.workers.first().and_then(|worker| worker.python.clone()), None);
    let python = thread["frames"].as_array().into_iter().flatten().filter(|frame| frame["kind"] == "python");
    assert_eq!(python.count(), 0);
    Ok(())
}

#[test]
fn a_process_that_dies_in_the_middle() -> Result<()> {
    let mut dying = idle()?;
    let living = idle()?;
    let command =
        Inspector::json("diagnose", &[dying.pid(), living.pid()]).arg("--duration").arg("2s").command();
    let child = { command }?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    eventually("the observation is under way", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        (!children.trim().is_empty()).then_some(())
    })?;
    dying.kill();
    let finished = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert!(matches!(finished.status.code(), Some(0 | 3)), "{stderr}");
    assert_eq!(stderr, "");
    let document = Document::parse(&String::from_utf8_lossy(&finished.stdout))?;
    document.thread(living.pid(), living.pid())?;
    let gap = document.report.gaps.iter().find(|gap| gap.pid == Some(dying.pid()));
    gap.context("the report says that the process ended")?;
    Ok(())
}

#[test]
fn no_privilege() -> Result<()> {
    let fixture = idle()?;
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let document = Inspector::json("dump", &[fixture.pid()]).under(&nobody).document()?;
    let thread = document.thread(fixture.pid(), fixture.pid())?;
    assert_eq!(thread["state"], "sleeping");
    assert_eq!(thread["comm"], procfs::comm(fixture.pid(), fixture.pid()).as_deref().unwrap_or_default());
    assert!(document.report.tier < inspector::model::Tier::Ebpf);
    assert!(!document.report.gaps.is_empty(), "what is missing is said");
    let doctor = Inspector::new(&["doctor"]).under(&nobody).run()?;
    assert_eq!(doctor.code(), Some(0), "{}", doctor.stderr);
    assert!(doctor.stdout.contains("CAP_"), "{}", doctor.stdout);
    Ok(())
}

/// Runs under a shell script in a mount namespace of its own; the script ends in `exec "$@"`.
fn in_mount_namespace(script: &str) -> [String; 6] {
    ["unshare", "--mount", "sh", "-ec", script, "sh"].map(String::from)
}

#[test]
fn no_btf() -> Result<()> {
    let fixture = idle()?;
    let hidden = in_mount_namespace("mount -t tmpfs none /sys/kernel/btf; exec \"$@\"");
    let document = Inspector::json("dump", &[fixture.pid()]).under(&hidden).document()?;
    document.thread(fixture.pid(), fixture.pid())?;
    assert_eq!(document.report.tier, inspector::model::Tier::Memory);
    let gaps = &document.report.gaps;
    assert!(gaps.iter().any(|gap| gap.reason.contains("BTF")), "{gaps:?}");
    Ok(())
}

#[test]
fn no_tracefs() -> Result<()> {
    let fixture = idle()?;
    let script =
        "for at in /sys/kernel/tracing /sys/kernel/debug; do mount -t tmpfs none $at; done; exec \"$@\"";
    let hidden = in_mount_namespace(script);
    let diagnose = Inspector::json("diagnose", &[fixture.pid()]).arg("-d=200ms").under(&hidden);
    let document = diagnose.document()?;
    document.thread(fixture.pid(), fixture.pid())?;
    assert!(document.report.probes.is_some(), "{:?}", document.report.gaps);
    Ok(())
}

#[test]
fn a_full_disk() -> Result<()> {
    let fixture = idle()?;
    let folder = tempfile::tempdir()?;
    let disk = folder.path().display().to_string();
    let script = format!(
        "mount -t tmpfs -o size=4k none {disk}; head -c 4096 /dev/zero >{disk}/full; status=0; \"$@\" >{disk}.out 2>{disk}.err || status=$?; ls -A {disk} >&2; exit $status"
    );
    let finished = Inspector::new(&["dump", "--pid", &fixture.pid().to_string()])
        .arg("-o")
        .arg(folder.path().join("r.json"))
        .under(&in_mount_namespace(&script))
        .run()?;
    assert_eq!(finished.stderr, "full\n", "nothing of ours is left on the disk");
    let said = fs::read_to_string(format!("{disk}.err"))?;
    let printed = fs::read_to_string(format!("{disk}.out"))?;
    fs::remove_file(format!("{disk}.err"))?;
    fs::remove_file(format!("{disk}.out"))?;
    assert_eq!(finished.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("r.json") && said.contains("No space left"), "{said}");
    assert!(printed.contains(&fixture.pid().to_string()), "the dump itself is printed");
    Ok(())
}

#[test]
fn a_stdout_that_is_full() -> Result<()> {
    let fixture = idle()?;
    let mut command = Inspector::new(&["dump", "--pid", &fixture.pid().to_string()]).command()?;
    let finished = command
        .stdout(File::options().write(true).open("/dev/full")?)
        .stderr(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    let said = String::from_utf8_lossy(&finished.stderr);
    assert_eq!(finished.status.code(), Some(1));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("No space left"), "{said}");
    Ok(())
}

#[test]
fn names_that_lie() -> Result<()> {
    const PROGRAM: &str = "
import ctypes, sys, threading
lie = '\\x1b[2J\\nHEALTHY  confidence 1.00\\x9b31m\\u202e'
def rest():
    ctypes.CDLL(None).prctl(15, b'\\x1b[31m\\nHEALTHY', 0, 0, 0)
    print('ready', flush=True)
    sys.stdin.read()
namespace = {'rest': rest}
exec(compile('def hidden():\\n    rest()', lie + '.py', 'exec'), namespace)
threading.Thread(target=namespace['hidden'], name=lie).start()
";
    let (fixture, _) = Fixture::program(
        &python::system(),
        &["-c", PROGRAM, "\x1b]0;owned\x07", "\nHEALTHY  confidence 1.00"],
    )?;
    for command in ["ps", "dump", "diagnose"] {
        let finished = Inspector::new(&[command, "--pid", &fixture.pid().to_string()]).run()?;
        assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
        let obeyed = finished.stdout.chars().find(|&c| c != '\n' && (c.is_control() || c == '\u{202e}'));
        assert_eq!(obeyed, None, "{command}: {}", finished.stdout);
        let forged = finished.stdout.lines().filter(|line| line.starts_with("HEALTHY")).count();
        assert!(forged <= usize::from(command == "diagnose"), "{command}: {}", finished.stdout);
    }
    let folded = Inspector::new(&["dump", "--folded", "--pid", &fixture.pid().to_string()]).run()?.stdout;
    assert_eq!(folded.lines().count(), procfs::tids(fixture.pid()).len(), "{folded}");
    // The document still has the names as they are.
    let document = Inspector::json("dump", &[fixture.pid()]).document()?;
    document.named(fixture.pid(), "\x1b[2J\nHEALTHY")?;
    Ok(())
}

/// The threads of a Python program whose frames run `deep`, and the gaps of the report.
fn deep_threads(program: &str) -> Result<(usize, String)> {
    let (fixture, _) = Fixture::program(&python::system(), &["-c", program])?;
    let pid = fixture.pid();
    let threads: Vec<(u32, u32)> = procfs::tids(pid).into_iter().map(|tid| (pid, tid)).collect();
    procfs::wait_all_blocked(&threads)?;
    let document = Inspector::json("dump", &[pid]).arg("--no-native").document()?;
    let with = document.threads(pid).filter(|thread| thread["frames"].to_string().contains("\"deep\""));
    Ok((with.count(), document.json["gaps"].to_string()))
}

#[test]
fn variables_that_multiply() -> Result<()> {
    // Threads, frames, variables, attributes and their attributes: few of each, far too many together.
    const PROGRAM: &str = r"
import sys, threading
class Program: pass
inner, outer = [Program() for _ in range(60)], [Program() for _ in range(60)]
for each in inner: each.__dict__.update({f'i{n}': None for n in range(500)})
for each in outer: each.__dict__.update({f'o{n}': inner[n % 60] for n in range(500)})
lock = threading.Lock()
lock.acquire()
lines = [f' v{n} = outer[{n}]' for n in range(60)]
scope = {'outer': outer}
exec('\n'.join(['def deep(depth, hidden):', *lines, ' deep(depth - 1, hidden) if depth else hidden[0]()']), scope)
threading.stack_size(256 << 10)
for _ in range(100): threading.Thread(target=scope['deep'], args=(6, [lock.acquire]), daemon=True).start()
print('ready', flush=True)
sys.stdin.read()
";
    let (with, gaps) = deep_threads(PROGRAM)?;
    assert_eq!(with, 100, "{gaps}");
    Ok(())
}

#[test]
fn a_lock_of_locks_of_locks() -> Result<()> {
    // Fourteen thousand objects that look like the library's, each with attributes beside those that make it one.
    const PROGRAM: &str = r"
import sys, threading
names = ('_lock _waiters _cond _flag _value _condition _state mutex not_empty maxsize queue _semlock _ident _name _tstate_lock'
    ' _handle _os_thread_handle wakeup owner _parties _count _rlock _woken_count _initial_value').split()
class Program: pass
def made(level):
    found = Program()
    found.__dict__ = dict.fromkeys((f'x{n}' for n in range(300)))
    if level: found.__dict__.update((name, made(level - 1)) for name in names)
    return found
lock = threading.Lock()
lock.acquire()
scope = {'lock': lock}
exec(compile('def deep(self): lock.acquire()', '/lib/threading.py', 'exec'), scope)
threading.Thread(target=scope['deep'], args=(made(3),), daemon=True).start()
print('ready', flush=True)
sys.stdin.read()
";
    let (with, gaps) = deep_threads(PROGRAM)?;
    assert_eq!(with, 1, "{gaps}");
    assert!(gaps.contains("lead to more objects than are read"), "{gaps}");
    Ok(())
}
