//! Mermaid flowcharts, as issue trackers and Markdown viewers draw them.

use super::{Drawing, Mark, Node, Shape};
use crate::model::Certainty;

pub(super) fn render(drawing: &Drawing) -> String {
    let mut text = String::from("flowchart LR\n");
    for (group, label) in drawing.groups.iter().enumerate() {
        text.push_str(&format!("  subgraph g{group}[\"{}\"]\n", escaped(label)));
        for (index, node) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.group == Some(group)) {
            text.push_str(&format!("    {}\n", declared(index, node)));
        }
        text.push_str("  end\n");
    }
    for (index, node) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.group.is_none()) {
        text.push_str(&format!("  {}\n", declared(index, node)));
    }
    for arrow in &drawing.arrows {
        let line = if arrow.certainty == Certainty::Proven { "-->" } else { "-.->" };
        text.push_str(&format!("  n{} {line} n{}\n", arrow.from, arrow.to));
    }
    if drawing.left_out > 0 {
        text.push_str(&format!("  rest[\"{} more threads are not drawn\"]\n", drawing.left_out));
    }
    for (mark, style) in
        [(Mark::Root, "stroke:#d97706,stroke-width:3px"), (Mark::Cycle, "stroke:#dc2626,stroke-width:3px")]
    {
        for (index, _) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.mark == mark) {
            text.push_str(&format!("  style n{index} {style}\n"));
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
            '#' | '"' | '<' | '>' | '&' | '`' | '\\' => safe.push_str(&format!("#{};", u32::from(character))),
            _ => safe.push(character),
        }
    }
    safe
}
