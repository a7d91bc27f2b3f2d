//! Mermaid flowcharts, as issue trackers and Markdown viewers draw them.

// Writing to a String cannot fail.
use std::fmt::Write as _;

use super::{Drawing, Mark, Node, Shape};
use crate::model::Certainty;

pub(super) fn render(drawing: &Drawing) -> String {
    let mut text = String::from("flowchart LR\n");
    for (group, label) in drawing.groups.iter().enumerate() {
        writeln!(text, "  subgraph g{group}[\"{}\"]", escaped(label)).ok();
        for (index, node) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.group == Some(group)) {
            writeln!(text, "    {}", declared(index, node)).ok();
        }
        text.push_str("  end\n");
    }
    for (index, node) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.group.is_none()) {
        writeln!(text, "  {}", declared(index, node)).ok();
    }
    for arrow in &drawing.arrows {
        let line = if arrow.certainty == Certainty::Proven { "-->" } else { "-.->" };
        writeln!(text, "  n{} {line} n{}", arrow.from, arrow.to).ok();
    }
    if drawing.left_out > 0 {
        writeln!(text, "  rest[\"{} more threads are not drawn\"]", drawing.left_out).ok();
    }
    for (mark, style) in
        [(Mark::Root, "stroke:#d97706,stroke-width:3px"), (Mark::Cycle, "stroke:#dc2626,stroke-width:3px")]
    {
        for (index, _) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.mark == mark) {
            writeln!(text, "  style n{index} {style}").ok();
        }
    }
    text
}

fn declared(index: usize, node: &Node) -> String {
    let lines: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
    let label = lines.join("<br/>");
    match node.shape {
        Shape::Thread => format!("n{index}[\"{label}\"]"),
        Shape::Process => format!("n{index}[[\"{label}\"]]"),
        Shape::Object => format!("n{index}([\"{label}\"])"),
    }
}

/// Mermaid reads entities (`#quot;`) inside quoted text, and HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '#' | '"' | '<' | '>' | '&' | '`' | '\\' => {
                write!(safe, "#{};", u32::from(character)).ok();
            }
            _ => safe.push(character),
        }
    }
    safe
}
