//! The programs' own warnings, passed on to `--verbose`.

use aya::Ebpf;
use aya_log::EbpfLogger;

use super::TasksError;

/// Reads what the programs report.
pub(super) struct Warnings(EbpfLogger<ToTracing>);

impl std::fmt::Debug for Warnings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Warnings")
    }
}

impl Warnings {
    /// Takes the programs' log out of the loaded object.
    pub(super) fn of(ebpf: &mut Ebpf) -> Result<Self, TasksError> {
        let logger = EbpfLogger::init_with_logger(ebpf, ToTracing);
        Ok(Self(logger.map_err(|why| TasksError::Object(format!("gives no log: {why}")))?))
    }

    /// Passes on what has been reported since the last call.
    pub(super) fn pass_on(&mut self) {
        self.0.flush();
    }
}

/// aya speaks the `log` crate's language, inspector that of `tracing`.
struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::warn!("eBPF: {}", record.args());
    }

    fn flush(&self) {}
}
