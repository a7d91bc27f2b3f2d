//! What each kind of evidence weighs. A confidence is the weight of the evidence for a family, from 0 to 1, not a
//! probability: sums of these, capped at [`CERTAIN`].

/// Nothing seen from outside is surer: the kernel's word on states and owners, read while everything stood still.
pub(super) const CERTAIN: f64 = 0.97;

/// From here on a finding is the verdict.
pub(super) const VERDICT: f64 = 0.5;

/// From here on a finding that is not the verdict forbids `healthy`: the verdict is `unknown`.
pub(super) const SUSPICION: f64 = 0.4;

/// For how long a thread must have stood in one wait before the wait can be a wedge, nanoseconds. A healthy server's waits
/// that are not idle states last milliseconds; a busy host's scheduler adds tens of them.
pub(super) const STANDING_NS: u64 = 1_000_000_000;

/// After this long, nanoseconds, patience is no explanation any more.
pub(super) const LONG_NS: u64 = 10_000_000_000;

/// After this long neither is a slow compilation, a checkpoint or a cold file system.
pub(super) const VERY_LONG_NS: u64 = 60_000_000_000;

/// A sleep of a scheduler this long, nanoseconds, is no back-off: the longest poll of a healthy one is 1 s.
pub(super) const FAR_DEADLINE_NS: u64 = 5_000_000_000;

/// CPU time, nanoseconds, in which a thread that runs Python would have answered a request for the GIL, had it had that much:
/// twice CPython's switch interval.
pub(super) const NEXT_TO_NO_CPU_NS: u64 = 10_000_000;

/// A process stopped by a signal: the kernel says so, and nothing but SIGCONT ends it.
pub(super) const STOPPED_BY_SIGNAL: f64 = 0.85;
/// A frozen cgroup: the same, but pausing a container may be meant.
pub(super) const FROZEN: f64 = 0.8;
/// A stop by a tracer: a profiler's ends within milliseconds.
pub(super) const TRACED: f64 = 0.35;
/// The stop lasted the whole observation, or longer than [`STANDING_NS`].
pub(super) const STOP_LASTS: f64 = 0.2;
/// Somebody waits for the stopped process.
pub(super) const STOP_HURTS: f64 = 0.07;
/// Nobody is known to wait for it, and it is not a worker: a job in the background of a shell.
pub(super) const STOP_IS_NOBODYS: f64 = 0.7;

/// A cycle whose every edge is proven.
pub(super) const PROVEN_CYCLE: f64 = 0.95;
/// A cycle with an edge that is inferred.
pub(super) const LIKELY_CYCLE: f64 = 0.65;
/// A cycle that goes through messages: nobody outside it holds another end, but a signal handler may still send one.
pub(super) const MESSAGE_CYCLE: f64 = 0.6;
/// A thread of such a cycle is in a known idle state: it waits for work, and nobody has any.
pub(super) const CYCLE_IS_IDLE: f64 = 0.4;
/// A wait in the cycle has a deadline and will break it.
pub(super) const CYCLE_ENDS_ITSELF: f64 = 0.5;

/// A thread of a circle that is only likely, or of one of messages, has not stood there for [`STANDING_NS`].
pub(super) const CYCLE_MAY_HAVE_MOVED: f64 = 0.4;

/// The GIL did not change hands over the observation, and a thread waits for it.
pub(super) const GIL_UNMOVED: f64 = 0.65;
/// Its holder stands in a blocking call: it cannot give it up before the call returns.
pub(super) const GIL_HOLDER_BLOCKED: f64 = 0.25;
/// Its holder runs native code: it may come back.
pub(super) const GIL_HOLDER_RUNS: f64 = 0.1;
/// The readings span less than [`STANDING_NS`]: a long native call that keeps the GIL looks the same.
pub(super) const GIL_SHORT_LOOK: f64 = 0.3;

/// A send without a deadline has stood for [`STANDING_NS`].
pub(super) const SEND_STANDS: f64 = 0.5;
/// A scheduler or serving thread is the sender.
pub(super) const SENDER_SERVES: f64 = 0.15;
/// There is no live connection to send on, or the reader at its end stands still.
pub(super) const NO_READER: f64 = 0.15;
/// Bytes wait in the send queue and none were acknowledged lately.
pub(super) const SEND_QUEUE_FULL: f64 = 0.1;
/// Others wait for the sender.
pub(super) const SENDER_BLOCKS_OTHERS: f64 = 0.1;

/// A thread stands in a mutex whose owner is no thread of its process.
pub(super) const ABANDONED_LOCK: f64 = 0.6;

/// The catalog expects a thread, start-up is over, and no thread of the process can be it.
pub(super) const MISSING_FROM_CATALOG: f64 = 0.7;
/// Whether start-up is over could not be seen: too much to pass over, too little for a verdict.
pub(super) const STARTUP_NOT_SEEN: f64 = 0.25;
/// Processes of the same kind and role have it.
pub(super) const SIBLINGS_HAVE_IT: f64 = 0.2;
/// Siblings have it, the catalog does not ask for it.
pub(super) const ONLY_SIBLINGS_HAVE_IT: f64 = 0.55;
/// A gap in `Thread-N` numbering: short-lived threads leave gaps too.
pub(super) const NUMBER_GAP: f64 = 0.02;

/// A scheduler stands in a lock that nobody known will release, in blocking I/O or in a long sleep.
pub(super) const SCHEDULER_BLOCKED: f64 = 0.6;
/// A process that is titled a scheduler stands outside its event loop: too much to pass over, too little for a verdict.
pub(super) const SCHEDULER_OUTSIDE_ITS_LOOP: f64 = 0.42;
/// A scheduler stands in a wait that a long computation can explain (an undecoded futex, a device).
pub(super) const SCHEDULER_WAITS_FOR_WORK: f64 = 0.3;
/// For longer than [`LONG_NS`].
pub(super) const FOR_LONG: f64 = 0.15;
/// For longer than [`VERY_LONG_NS`], in addition.
pub(super) const FOR_VERY_LONG: f64 = 0.15;

/// Nothing that should move stands still, everything was readable: no more than that, since threads do not show a
/// request that waits in a queue.
pub(super) const HEALTHY: f64 = 0.8;
/// The same where something could not be read.
pub(super) const HEALTHY_WITH_GAPS: f64 = 0.6;
/// The same where something was seen that a wedge explains as well as work does.
pub(super) const HEALTHY_WITH_DOUBTS: f64 = 0.5;

/// The sum of weights, within 0 and [`CERTAIN`].
pub(super) fn sum(weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    // Two digits are what such weights are worth.
    (sum.clamp(0.0, CERTAIN) * 100.0).round() / 100.0
}

/// What the age of a wait adds.
pub(super) fn for_long(blocked_ns: Option<u64>) -> f64 {
    let blocked = blocked_ns.unwrap_or(0);
    if blocked >= VERY_LONG_NS {
        FOR_LONG + FOR_VERY_LONG
    } else if blocked >= LONG_NS {
        FOR_LONG
    } else {
        0.0
    }
}
