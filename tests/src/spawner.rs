//! Starts processes from one thread that lives as long as the test program.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, and the test runner gives each test a thread of its own:
//! a fleet that several tests share would die with the test that happened to start it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

type Job = (Command, Sender<io::Result<Child>>);

/// Spawns `command` in a process group of its own that dies with the test program.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static JOBS: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes one system call with constant arguments.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
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
