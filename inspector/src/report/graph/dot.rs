//! Graphviz (`dot -Tsvg`).

// Writing to a String cannot fail.
use std::fmt::Write as _;

use super::{Drawing, Mark, Node, Shape};
use crate::model::Certainty;

pub(super) fn render(drawing: &Drawing) -> String {
    let mut text =
        String::from("digraph waits {\n  rankdir=LR;\n  node [fontname=\"monospace\", fontsize=10];\n");
    for (group, label) in drawing.groups.iter().enumerate() {
        writeln!(text, "  subgraph cluster_{group} {{\n    label={};", quoted(label)).ok();
        for (index, node) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.group == Some(group)) {
            writeln!(text, "    n{index} [{}];", attributes(node)).ok();
        }
        text.push_str("  }\n");
    }
    for (index, node) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.group.is_none()) {
        writeln!(text, "  n{index} [{}];", attributes(node)).ok();
    }
    for arrow in &drawing.arrows {
        let style = if arrow.certainty == Certainty::Proven { "solid" } else { "dashed" };
        let color = if arrow.in_cycle { ", color=red" } else { "" };
        let evidence = quoted(&arrow.evidence);
        writeln!(text, "  n{} -> n{} [style={style}{color}, tooltip={evidence}];", arrow.from, arrow.to).ok();
    }
    if drawing.left_out > 0 {
        let note = quoted(&format!("{} more threads are not drawn", drawing.left_out));
        writeln!(text, "  rest [shape=plaintext, label={note}];").ok();
    }
    text.push_str("}\n");
    text
}

fn attributes(node: &Node) -> String {
    let shape = match node.shape {
        Shape::Thread => "box",
        Shape::Process => "box3d",
        Shape::Object => "ellipse",
    };
    let color = match node.mark {
        Mark::Plain => "",
        Mark::Root => ", color=darkorange, penwidth=2",
        Mark::Cycle => ", color=red, penwidth=2",
    };
    let lines: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
    format!("shape={shape}{color}, label=\"{}\"", lines.join("\\n"))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Inside a quoted string of DOT.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
