//! The part of an io_uring's `fdinfo` that tells what is under way (`io_uring/fdinfo.c`, Linux 5.1 and later).

use crate::model::Ring;

/// Most requests kept that wait for their file.
const MAX_POLLING: usize = 64;

/// What the lines say. Ones that are missing, as while the ring is locked, leave their default.
pub(super) fn parse(text: &str) -> Ring {
    let mut ring = Ring::default();
    let (mut submission, mut completion) = ((0, 0), (0, 0));
    for line in text.lines() {
        // `  op=6, task_works=0`, below `PollList:`.
        if let Some(rest) = line.trim_start().strip_prefix("op=") {
            let op: Option<u8> = rest.split(',').next().and_then(|op| op.trim().parse().ok());
            ring.polling.extend(op.filter(|_| ring.polling.len() < MAX_POLLING));
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let number: Option<u32> = value.trim().parse().ok();
        match (key, number) {
            ("SqHead", Some(number)) => submission.0 = number,
            ("SqTail", Some(number)) => submission.1 = number,
            ("CqHead", Some(number)) => completion.0 = number,
            ("CqTail", Some(number)) => completion.1 = number,
            // -1 without such a thread; 0 in some versions.
            ("SqThread", tid) => ring.submitter = tid.filter(|&tid| tid > 0),
            _ => {}
        }
    }
    // Heads and tails count up and wrap around.
    ring.taken = submission.0;
    ring.queued = submission.1.wrapping_sub(submission.0);
    ring.completed = completion.1;
    ring.unread = completion.1.wrapping_sub(completion.0);
    ring
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_requests_that_wait_for_their_pipe() {
        let ring = parse(
            "SqMask:\t0x7\nSqHead:\t2\nSqTail:\t3\nCachedSqHead:\t2\nCqMask:\t0xf\nCqHead:\t4294967295\nCqTail:\t1\n\
             SQEs:\t0\nCQEs:\t0\nSqThread:\t-1\nUserFiles:\t0\nPollList:\n  op=6, task_works=0\n  op=22, task_works=0\n",
        );
        let expected =
            Ring { taken: 2, queued: 1, completed: 1, unread: 2, polling: vec![6, 22], submitter: None };
        assert_eq!(ring, expected);
        assert_eq!(parse("SqThread:\t71\n").submitter, Some(71));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "((SqHead|SqTail|CqTail|SqThread|  op=)[:\t]{0,2}[-0-9]{0,12}\n){0,100}") {
            prop_assert!(parse(&text).polling.len() <= MAX_POLLING);
        }
    }
}
