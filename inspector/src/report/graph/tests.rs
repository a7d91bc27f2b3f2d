use proptest::prelude::*;

use super::*;
use crate::{
    model::{
        WaitKind,
        report::{Cycle, Root, Through},
    },
    report::sample,
};

fn edge(from: u32, to: u32, text: &str, certainty: Certainty) -> Edge {
    let end = |tid| End { pid: 100, tid: Some(tid) };
    Edge {
        from: end(from),
        to: end(to),
        through: Through {
            kind: WaitKind::Mutex,
            text: text.into(),
            address: Some(u64::from(to)),
            inode: None,
        },
        certainty,
        evidence: "owner word".into(),
        by_waker: false,
    }
}

/// The sample's sender and waiter in a circle, and one more behind them.
fn report() -> Report {
    let mut report = sample::wedged();
    report.edges = vec![
        edge(101, 102, "mutex 0x66 held by b (tid 102)", Certainty::Proven),
        edge(102, 101, "mutex 0x65 held by \"a\" <&> #1;", Certainty::Likely),
        edge(103, 101, "mutex 0x65 held by a", Certainty::Proven),
    ];
    report.cycles = vec![Cycle { edges: vec![0, 1], certainty: Certainty::Likely }];
    let end = End { pid: 100, tid: Some(101) };
    report.roots = vec![Root { end, cycle: Some(0), waiters: 3, waited_ns: 0, chain: vec![2] }];
    report
}

#[test]
fn the_three_formats() {
    let report = report();
    insta::assert_snapshot!("dot", render(&report, Format::Dot));
    insta::assert_snapshot!("mermaid", render(&report, Format::Mermaid));
    insta::assert_snapshot!("svg", render(&report, Format::Svg));
}

#[test]
fn waiters_of_one_lock_meet_at_it() {
    let drawing = Drawing::of(&report());
    let objects = drawing.nodes.iter().filter(|node| node.shape == Shape::Object).count();
    assert_eq!((objects, drawing.nodes.len(), drawing.left_out), (2, 5, 0));
}

#[test]
fn a_crowd_is_cut() {
    let mut report = report();
    report.edges = (0..1000).map(|tid| edge(1000 + tid, 101, "mutex", Certainty::Proven)).collect();
    report.cycles.clear();
    report.roots[0].cycle = None;
    let drawing = Drawing::of(&report);
    assert_eq!(drawing.left_out, 1001 - MOST_ENDS);
    assert!(render(&report, Format::Svg).contains("851 more threads are not drawn"));
}

#[test]
fn a_hostile_target_cannot_break_out_of_a_string() {
    let mut report = sample::hostile("x\"];\n<script>-->&#34;]]\u{1b}[2J");
    report.roots[0].waiters = 2;
    let expected = sample::hostile("x");
    for format in [Format::Dot, Format::Mermaid, Format::Svg] {
        let (text, harmless) = (render(&report, format), render(&expected, format));
        assert_eq!(text.lines().count(), harmless.lines().count(), "{text}");
        assert!(format == Format::Dot || !text.contains("<script"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    // A quote that ends no string is a backslash or an entity.
    let dot = render(&report, Format::Dot);
    assert!(
        dot.lines().all(|line| line.replace("\\\\", "").replace("\\\"", "").matches('"').count() % 2 == 0),
        "{dot}"
    );
}

proptest! {
    #[test]
    fn no_two_nodes_share_a_place(pairs in prop::collection::vec((0u32..20, 0u32..20), 0..40), name in "\\PC{0,20}") {
        let mut report = report();
        report.threads[0].name = name;
        report.edges = pairs.iter().map(|&(from, to)| edge(100 + from, 100 + to, "x", Certainty::Likely)).collect();
        report.cycles.clear();
        let root = |tid| Root { end: End { pid: 100, tid: Some(tid) }, cycle: None, waiters: 1, waited_ns: 0, chain: vec![] };
        report.roots = (100..120).map(root).collect();
        let drawing = Drawing::of(&report);
        let cells = layout::cells(&drawing);
        prop_assert_eq!(cells.len(), drawing.nodes.len());
        for (at, cell) in cells.iter().enumerate() {
            for other in &cells[at + 1..] {
                prop_assert!(cell.column != other.column || (cell.row - other.row).abs() >= 0.99, "{:?}", cells);
            }
        }
        for format in [Format::Dot, Format::Mermaid, Format::Svg] {
            prop_assert!(!render(&report, format).chars().any(|c| c.is_control() && c != '\n'));
        }
    }
}
