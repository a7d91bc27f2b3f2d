//! The locks of musl, another C library than the host's: the right owner where it keeps one, nobody where it does not.

use anyhow::{Context as _, Result};
use inspector_tests::{
    Fixture, compile,
    waiters::{Waiters, Waits, same_after_stop},
};

#[test]
fn every_lock_of_musl() -> Result<()> {
    for linked in ["-static", "-rdynamic"] {
        // musl has no adaptive mutexes.
        let flags = [linked, "-DPTHREAD_MUTEX_ADAPTIVE_NP=PTHREAD_MUTEX_NORMAL"];
        let program = compile::musl("waits/locks.c", &flags)?;
        let waiters = Waiters::new(Fixture::program::<&str>(&program, &[])?)?;
        waiters.wait_blocked()?;
        let waits = waiters.dump()?;
        locks(&waiters, &waits).with_context(|| linked.to_owned())?;
        same_after_stop(&waiters, &waits).with_context(|| linked.to_owned())?;
    }
    Ok(())
}

fn locks(waiters: &Waiters, waits: &Waits) -> Result<()> {
    for (name, flavour) in [
        ("mutex-recursive", "recursive"),
        ("mutex-errorcheck", "errorcheck"),
        ("mutex-robust", "robust"),
        ("mutex-pi", "pi"),
        ("stdio", "stdio"),
    ] {
        waits.check(waiters, name, "mutex")?;
        assert_eq!(waits.wait(name)["flavour"], flavour, "{name}");
        let owner = waits.owner(name)?;
        assert_eq!(owner["tid"], waiters.named[name]["owner"], "{name}: {owner:#}");
        assert_eq!(owner["certainty"], "proven", "{name}: {owner:#}");
    }
    let joined = waits.owner("join")?;
    assert_eq!(waits.wait("join")["kind"], "join");
    assert_eq!(joined["tid"], waiters.named["signal"]["tid"], "{joined:#}");
    assert_eq!(joined["certainty"], "proven", "{joined:#}");
    // What keeps no owner names nobody.
    for (name, kind) in [
        ("mutex-normal", "mutex"),
        ("mutex-adaptive", "mutex"),
        ("mutex-timed", "mutex"),
        ("mutex-own", "mutex"),
        ("mutex-orphaned", "mutex"),
        ("rwlock-reader", "rwlock"),
        ("rwlock-writer", "rwlock"),
        ("rwlock-behind-readers", "rwlock"),
        ("semaphore", "semaphore"),
        ("semaphore-shared", "semaphore"),
        ("semaphore-timed", "semaphore"),
    ] {
        waits.check(waiters, name, kind)?;
        waits.has_no_owner(name)?;
    }
    // Its waiters wait on words of their own stacks.
    for name in ["condvar", "condvar-timed"] {
        assert_eq!(waits.wait(name)["kind"], "condvar", "{name}");
        waits.has_no_owner(name)?;
    }
    Ok(())
}
