//! What a process's cgroups say of it: its container, and the CPU time that it may use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The container that a process runs in, as its cgroup's path tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Container {
    /// `docker`, `containerd`, `cri-o`, `podman`, `lxc`, `systemd-nspawn`; absent where the path does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Its id (64 hexadecimal digits), or its name with `lxc` and `systemd-nspawn`; absent for a process in a pod's own
    /// cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The uid of its Kubernetes pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The host name in its UTS namespace, where that is not the host's: the pod's name under Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Characters of an id that people use.
const SHORT_ID: usize = 12;

impl Container {
    /// The id as `docker ps` and `crictl ps` show it.
    pub fn short_id(&self) -> Option<&str> {
        let id = self.id.as_deref()?;
        let is_digest = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digest { id.get(..SHORT_ID) } else { Some(id) }
    }
}

/// A CPU quota (CFS bandwidth) of a cgroup that a process is in or below, and what it cost over the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuQuota {
    /// The cgroup's path.
    pub cgroup: String,
    /// CPU time that all of its processes together may use in each period, nanoseconds.
    pub quota_ns: u64,
    /// The period, nanoseconds.
    pub period_ns: u64,
    /// For how long it was watched, nanoseconds.
    pub watched_ns: u64,
    /// Periods that ended meanwhile in which it wanted CPU time.
    pub periods: u64,
    /// In how many of them the quota was used up.
    pub throttled_periods: u64,
    /// For how long it was kept from CPUs meanwhile, nanoseconds, added up over the CPUs; counted when a throttling ends.
    pub throttled_ns: u64,
}

impl CpuQuota {
    /// It was used up in most periods: a thread that is runnable and not on a CPU waits for the next period, and hardly
    /// for anything else.
    pub const fn is_short(&self) -> bool {
        self.throttled_periods > 0 && self.throttled_periods.saturating_mul(2) >= self.periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_digest_is_shortened() {
        let container = |id: &str| Container { id: Some(id.into()), ..Container::default() };
        assert_eq!(container(&"0123456789abcdef".repeat(4)).short_id(), Some("0123456789ab"));
        assert_eq!(container("a-machine-with-a-long-name").short_id(), Some("a-machine-with-a-long-name"));
        assert_eq!(Container::default().short_id(), None);
    }

    #[test]
    fn a_quota_is_short_when_most_periods_used_it_up() {
        let quota =
            |periods, throttled_periods| CpuQuota { periods, throttled_periods, ..CpuQuota::default() };
        assert!(!quota(0, 0).is_short() && !quota(10, 4).is_short());
        assert!(quota(10, 5).is_short() && quota(1, 1).is_short());
        // The counters are not read at one instant.
        assert!(quota(1, 2).is_short());
    }
}
