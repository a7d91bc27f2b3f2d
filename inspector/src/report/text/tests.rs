use insta::assert_snapshot;
use proptest::prelude::*;

use super::{dump, ps, verdict};
use crate::report::{folded, sample};

#[test]
fn verdict_fits_a_ticket() {
    assert_snapshot!(verdict(&sample::wedged(), false));
}

#[test]
fn dump_shows_every_thread() {
    assert_snapshot!(dump(&sample::wedged(), false));
}

#[test]
fn ps_is_a_table() {
    assert_snapshot!(ps(&sample::wedged(), false));
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let report = sample::wedged();
    for (plain, colored) in [
        (verdict(&report, false), verdict(&report, true)),
        (dump(&report, false), dump(&report, true)),
        (ps(&report, false), ps(&report, true)),
    ] {
        assert_ne!(plain, colored);
        assert_eq!(plain, without_styles(&colored));
    }
}

fn without_styles(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').expect("an unfinished escape").1;
    }
    plain + rest
}

proptest! {
    /// Whatever a target writes into its names, the page has the lines that it has with harmless names, and not one
    /// byte that a terminal obeys.
    #[test]
    fn a_hostile_target_cannot_break_out(poison in any::<String>()) {
        let harmless = sample::hostile("x");
        let report = sample::hostile(&format!("x{poison}\n\x1b[2JHEALTHY;"));
        for page in [verdict, dump, ps] {
            let (expected, text) = (page(&harmless, false), page(&report, false));
            prop_assert_eq!(text.lines().count(), expected.lines().count());
            prop_assert_eq!(text.chars().find(|&c| c.is_control() && c != '\n'), None);
        }
        let stacks = folded::render(&report);
        let expected = folded::render(&harmless);
        prop_assert_eq!(stacks.lines().count(), expected.lines().count());
        for (line, expected) in stacks.lines().zip(expected.lines()) {
            prop_assert_eq!(line.matches(';').count(), expected.matches(';').count());
        }
    }
}

/// 4 KB in each string: whoever pastes a page into a ticket gets lines that can be read.
#[test]
fn long_names_do_not_make_long_lines() {
    let short = sample::hostile("x");
    for name in ["n".repeat(4096), "/\u{1b}[2J".repeat(512)] {
        let report = sample::hostile(&name);
        for (page, most) in [(verdict as fn(&_, _) -> _, 2000), (dump, 620), (ps, 620)] {
            let text = page(&report, false);
            assert_eq!(text.lines().count(), page(&short, false).lines().count());
            let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
            assert!(longest.chars().count() <= most, "{} characters: {longest}", longest.chars().count());
            assert!(text.contains('…'), "{text}");
        }
        let folded = folded::render(&report);
        let stacks = folded.lines().filter_map(|line| line.rsplit_once(' '));
        for entry in stacks.flat_map(|(stack, _)| stack.split(';')) {
            assert!(entry.chars().count() <= 400, "{entry}");
        }
        // The document keeps what was read.
        let document = serde_json::to_value(&report).expect("a document");
        assert_eq!(document["threads"][0]["name"], name);
    }
}
