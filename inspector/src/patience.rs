//! Work that a target can hold up, done on a thread that is left behind if that happens.
//!
//! Two locks of a target can be held for good. Its `mmap_lock` stops who reads its memory, and so `cmdline` and `environ`.
//! Its `exec_update_lock` is held by `execve` while that waits for the first one (`fs/exec.c`, `exec_mmap`: a child of
//! `vfork` whose parent's lock is held), and stops who reads its `syscall` and `stack`, its `maps`, on some kernels even
//! its `stat` and the links `exe`, `fd/*` and `ns/*`. `status`, `comm`, `schedstat`, `cgroup` and the lists `task` and
//! `fd` take neither. All these waits are killable: what is left behind ends with the command.

use std::{
    fmt, fs, io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

/// How long one piece of work may take. It takes microseconds, unless a lock is held; a busy process that maps memory
/// holds it for moments only.
const DEADLINE: Duration = Duration::from_millis(250);

/// How many may take that long, and how long one may take after that: a host where many processes hang has to be reported
/// in time, and those that do not hang have to be in the report.
const PATIENT: u32 = 4;
const SHORT_DEADLINE: Duration = Duration::from_millis(20);

/// On a busy host a thread may get no processor for that long: one that is seen to want one, or to have gone to sleep
/// anew, is waited for again, this often in all.
const LOOKS_AGAIN: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How many may be left behind, each a thread of ours. After that nothing more is tried.
const MOST_LEFT: u32 = 100;

type Work = Box<dyn FnOnce() + Send>;

/// One working thread at a time; one that hangs is left behind, and another one takes its place.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    worker: Option<Worker>,
    left: u32,
    looked_again: u32,
}

#[derive(Debug)]
struct Worker {
    todo: Sender<Work>,
    /// Its tid; 0: it did not run yet.
    tid: Arc<AtomicI32>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Late {
    /// It did not come in time.
    Deadline(Duration),
    /// Too many did not come before it.
    NotTried,
    /// There is no thread for it.
    Failed(io::Error),
}

impl fmt::Display for Late {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(after) => write!(
                formatter,
                "did not come within {} ms: the reader sleeps in the kernel, as it does where the process's memory map is locked, its pages do not come, or it hangs in execve",
                after.as_millis()
            ),
            Self::NotTried => write!(formatter, "was not read: {MOST_LEFT} before it did not come"),
            Self::Failed(why) => write!(formatter, "was not read: no thread for it: {why}"),
        }
    }
}

impl Patience {
    /// Does `work`, which may take `more` than what a few files of `/proc` take.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        more: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Late> {
        if self.left >= MOST_LEFT {
            return Err(Late::NotTried);
        }
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start().map_err(Late::Failed)?,
        };
        let (done, answer) = sync_channel(1);
        let ended = || Late::Failed(io::Error::other("it ended"));
        // Nobody waits any more for what comes late.
        worker.todo.send(Box::new(move || done.send(work()).unwrap_or_default())).map_err(|_| ended())?;
        let deadline = if self.left < PATIENT { DEADLINE } else { SHORT_DEADLINE }.saturating_add(more);
        let mut received = answer.recv_timeout(deadline);
        let mut slept = None;
        while matches!(received, Err(RecvTimeoutError::Timeout)) && self.looked_again < LOOKS_AGAIN {
            self.looked_again = self.looked_again.saturating_add(1);
            let sleep = worker.sleep();
            if sleep.is_some() && sleep == slept {
                break;
            }
            slept = sleep;
            received = answer.recv_timeout(LOOK_AGAIN);
        }
        match received {
            Ok(answer) => {
                self.worker = Some(worker);
                Ok(answer)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.left = self.left.saturating_add(1);
                Err(Late::Deadline(deadline))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

impl Worker {
    /// The thread ends when its sender is dropped or, if it hangs, with the command.
    fn start() -> io::Result<Self> {
        let (todo, work) = channel::<Work>();
        let tid = Arc::new(AtomicI32::new(0));
        let own = Arc::clone(&tid);
        thread::Builder::new().name("proc-reader".into()).spawn(move || {
            own.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            for work in work {
                work();
            }
        })?;
        Ok(Self { todo, tid })
    }

    /// Where it sleeps in the kernel: how often it went to sleep so far. `None`: it runs, or waits for a processor.
    fn sleep(&self) -> Option<String> {
        let tid = Some(self.tid.load(Ordering::Relaxed)).filter(|&tid| tid != 0)?;
        let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let runs = line("State:")?.trim_start().starts_with('R');
        line("voluntary_ctxt_switches:").filter(|_| !runs).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_costs_its_deadline_and_nothing_behind_it() {
        let mut patience = Patience::default();
        assert_eq!(patience.run(Duration::ZERO, || 1).unwrap(), 1);
        let (release, hang) = channel::<()>();
        let late = patience.run(Duration::ZERO, move || hang.recv().is_ok());
        assert!(matches!(late, Err(Late::Deadline(DEADLINE))), "{late:?}");
        assert_eq!(patience.run(Duration::ZERO, || 2).unwrap(), 2, "what does not hang is done");
        assert!(release.send(()).is_ok(), "it hangs still");
    }

    #[test]
    fn what_is_only_slow_is_waited_for() {
        let mut patience = Patience::default();
        let busy = std::time::Instant::now();
        let done = patience.run(Duration::ZERO, move || {
            while busy.elapsed() < DEADLINE.saturating_mul(2) {
                std::hint::black_box(0);
            }
            4
        });
        assert_eq!(done.unwrap(), 4);
    }

    #[test]
    fn slow_work_is_waited_for_again_so_often_in_all_and_no_more() {
        let mut patience = Patience { looked_again: LOOKS_AGAIN, ..Patience::default() };
        let busy = std::time::Instant::now();
        let late = patience.run(Duration::ZERO, move || {
            while busy.elapsed() < DEADLINE.saturating_mul(2) {
                std::hint::black_box(0);
            }
        });
        assert!(matches!(late, Err(Late::Deadline(DEADLINE))), "{late:?}");
    }

    #[test]
    fn very_many_that_hang_end_the_trying() {
        let mut patience = Patience { left: PATIENT, ..Patience::default() };
        let (_release, hang) = channel::<()>();
        let late = patience.run(Duration::ZERO, move || hang.recv().is_ok());
        assert!(matches!(late, Err(Late::Deadline(SHORT_DEADLINE))), "{late:?}");
        patience.left = MOST_LEFT;
        assert!(matches!(patience.run(Duration::ZERO, || 1), Err(Late::NotTried)));
    }

    #[test]
    fn work_that_panics_costs_only_itself() {
        let mut patience = Patience::default();
        let failed = patience.run(Duration::ZERO, || panic!("on purpose"));
        assert!(matches!(failed, Err(Late::Failed(_))), "{failed:?}");
        assert_eq!(patience.run(Duration::ZERO, || 3).unwrap(), 3);
    }
}
