//! How every page and every sentence writes durations, times and text that is too long.

use std::borrow::Cow;

use super::CpuQuota;

/// A duration in nanoseconds, with the two units that matter: `230ms`, `12.3s`, `2m03s`, `17h03m`, `3d04h`.
pub fn humane(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let seconds = ns / SECOND;
    match seconds {
        0 if ns < 1_000_000 => format!("{}µs", ns / 1_000),
        0 => format!("{}ms", ns / 1_000_000),
        1..60 => format!("{seconds}.{}s", ns % SECOND / (SECOND / 10)),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A quota and what it cost: `/a/b: 10ms per 100ms, used up in 9 of 10 periods`.
pub fn quota(quota: &CpuQuota) -> String {
    let CpuQuota { cgroup, quota_ns, period_ns, periods, throttled_periods, .. } = quota;
    let (amount, period) = (humane(*quota_ns), humane(*period_ns));
    format!("{cgroup}: {amount} per {period}, used up in {throttled_periods} of {periods} periods")
}

/// Wall-clock time of day, `17:20:11` UTC. Reports carry no time zone: they are compared across hosts.
pub fn time_of_day(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// At most `limit` characters, `…` in place of what is cut; nothing where there is no room for that either.
pub fn clip(text: &str, limit: usize) -> Cow<'_, str> {
    // No text has more characters than bytes.
    if text.len() <= limit || text.chars().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    if limit == 0 {
        return Cow::Borrowed("");
    }
    let mut clipped: String = text.chars().take(limit.saturating_sub(1)).collect();
    clipped.push('…');
    Cow::Owned(clipped)
}

/// As [`clip`], but it is the beginning that is cut: a path tells most at its end.
pub fn clip_start(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let extra = text.chars().count().saturating_sub(limit);
    if extra == 0 {
        return Cow::Borrowed(text);
    }
    Cow::Owned(std::iter::once('…').chain(text.chars().skip(extra + 1)).take(limit).collect())
}

#[cfg(test)]
mod tests {
    use super::{clip, clip_start, humane, time_of_day};

    #[test]
    fn each_scale_shows_its_two_units() {
        const MS: u64 = 1_000_000;
        let cases = [
            (0, "0µs"),
            (999_999, "999µs"),
            (230 * MS, "230ms"),
            (999 * MS, "999ms"),
            (1_000 * MS, "1.0s"),
            (12_399 * MS, "12.3s"),
            (59_999 * MS, "59.9s"),
            (60_000 * MS, "1m00s"),
            (123_000 * MS, "2m03s"),
            (61_380_000 * MS, "17h03m"),
            (86_400_000 * MS, "1d00h"),
            (u64::MAX, "213503d23h"),
        ];
        for (ns, expected) in cases {
            assert_eq!(humane(ns), expected, "{ns} ns");
        }
    }

    #[test]
    fn time_of_day_is_utc() {
        assert_eq!(time_of_day(1_700_000_000_000_000_000), "22:13:20");
        assert_eq!(time_of_day(0), "00:00:00");
    }

    #[test]
    fn clip_counts_characters() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äö…");
        assert_eq!(clip("äöüß", 0), "");
        assert_eq!(clip_start("äöü", 3), "äöü");
        assert_eq!(clip_start("äöüß", 3), "…üß");
        assert_eq!(clip_start("äöüß", 0), "");
    }
}
