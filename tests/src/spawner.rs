//! Starts processes from one thread that lives as long as the test program.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, and the test runner gives each test a thread of its own:
//! a fleet that several tests share would die with the test that happened to start it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

use rustix::process::Signal;

type Job = (Command, Sender<io::Result<Child>>);

/// Spawns `command` in a process group of its own; when the test program ends, it gets the signal `at_death`.
pub(crate) fn spawn(mut command: Command, at_death: Signal) -> io::Result<Child> {
    static JOBS: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes one system call with plain numbers.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, at_death.as_raw()) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let jobs = JOBS.get_or_init(|| {
        let (jobs, waiting) = channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in waiting {
                // A test that gave up no longer wants the answer; its child is then killed here.
                if let Err(unwanted) = answer.send(command.spawn())
                    && let Ok(mut child) = unwanted.0
                {
                    child.kill().ok();
                    child.wait().ok();
                }
            }
        });
        Mutex::new(jobs)
    });
    let (answer, answers) = channel();
    let gone = || io::Error::other("the spawner thread is gone");
    jobs.lock().map_err(|_| gone())?.send((command, answer)).map_err(|_| gone())?;
    answers.recv().map_err(|_| gone())?
}
