//! CPU quotas that are used up.

use super::{
    assert_verdict,
    builder::{Builder, PREFILL, SECOND},
    starved,
};
use crate::{
    diagnose::Diagnosis,
    model::{
        CpuQuota, TaskState, WaitKind,
        report::{Family, Status},
    },
};

fn quota(throttled_periods: u64) -> CpuQuota {
    CpuQuota {
        cgroup: "/kubepods/pod".into(),
        quota_ns: SECOND / 100,
        period_ns: SECOND / 10,
        periods: 10,
        throttled_periods,
        ..CpuQuota::default()
    }
}

fn doubts(diagnosis: &Diagnosis) -> usize {
    let against = diagnosis.verdict.evidence.iter().filter(|evidence| !evidence.supports);
    against.filter(|evidence| evidence.fact.contains("too little CPU time")).count()
}

#[test]
fn a_quota_that_is_used_up_is_a_doubt_and_a_mild_one_is_not() {
    let mut pair = Builder::pair();
    pair.block(PREFILL, PREFILL, WaitKind::Throttled, &["recv_requests", "event_loop_normal_disagg_prefill"]);
    for (throttled, expected) in [(9, 1), (4, 0)] {
        for process in &mut pair.capture.processes {
            process.cpu_quotas = vec![quota(throttled)];
        }
        let diagnosis = pair.diagnose();
        assert_verdict(&diagnosis, Status::Healthy, Family::Healthy);
        assert_eq!(doubts(&diagnosis), expected, "once for the cgroup that all are in");
    }
}

#[test]
fn a_gil_holder_without_cpu_time_is_no_culprit_and_one_with_it_is() {
    let mut pair = starved([7, 7, 7]);
    pair.process(PREFILL).cpu_quotas = vec![quota(10)];
    let tid = PREFILL + 3;
    pair.thread(PREFILL, tid).state = TaskState::Running;
    pair.wait(tid).kind = WaitKind::Throttled;
    pair.thread(PREFILL, tid).activity.cpu_ns = Some(SECOND / 1000);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Healthy, Family::Healthy);
    assert_eq!(doubts(&diagnosis), 1);
    pair.thread(PREFILL, tid).activity.cpu_ns = Some(SECOND / 10);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::GilStarvation);
    assert_eq!(doubts(&diagnosis), 1, "the quota is told all the same");
}
