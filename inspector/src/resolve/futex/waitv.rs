//! `futex_waitv`: any of several words ends the wait. Each is decoded as if it were waited for alone.

use super::{Command, Futex, PRIVATE, decode};
use crate::{
    model::{Certainty, Owner, Wait, WaitKind, WaitvWord},
    resolve::{
        scene::Blocked,
        time::{Clock, Timeout},
    },
};

/// Most words named in the text, and most owners.
const MOST_NAMED: usize = 4;
const MOST_OWNERS: usize = 16;

pub(super) fn resolve(blocked: &Blocked<'_>) -> Wait {
    let timeout = Timeout::absolute_at(blocked, Clock::from_id(blocked.argument(4)), blocked.argument(3));
    let words = WaitvWord::saved(blocked.syscall, &blocked.thread.memory);
    let decoded: Vec<Wait> = words.iter().map(|word| decode(&futex(blocked, *word))).collect();
    // An array that was not read whole leaves words that nothing is known of.
    let count = (blocked.argument(1) as u32 as usize).max(decoded.len());
    if count == 1
        && let [only] = decoded.as_slice()
    {
        return timeout.of(only.clone());
    }
    let mut owners: Vec<Owner> = Vec::new();
    for owner in decoded.iter().flat_map(|wait| &wait.owners) {
        let known = owners.iter().any(|known| (known.pid, known.tid) == (owner.pid, owner.tid));
        if !known && owners.len() < MOST_OWNERS {
            // Any of the others can end the wait as well.
            owners.push(Owner { certainty: Certainty::Likely, ..owner.clone() });
        }
    }
    timeout.of(Wait {
        kind: WaitKind::Futex,
        text: format!("any of {count} futexes{}", list(&decoded, count)),
        flavour: Some("waitv".to_owned()),
        owners,
        open_ended: true,
        ..Wait::default()
    })
}

fn futex<'a>(blocked: &Blocked<'a>, word: WaitvWord) -> Futex<'a> {
    Futex {
        blocked: *blocked,
        word: word.address,
        expected: word.expected,
        command: Command::Wait,
        private: u64::from(word.flags) & PRIVATE != 0,
        timeout: Timeout::NONE,
        shared: blocked.process.shared_object(word.address),
    }
}

/// `: mutex 0x… held by …; semaphore 0x…; 3 more`.
fn list(decoded: &[Wait], count: usize) -> String {
    let mut parts: Vec<String> = decoded.iter().take(MOST_NAMED).map(|wait| wait.text.clone()).collect();
    if parts.is_empty() {
        return String::new();
    }
    if count > parts.len() {
        parts.push(format!("{} more", count - parts.len()));
    }
    format!(": {}", parts.join("; "))
}
