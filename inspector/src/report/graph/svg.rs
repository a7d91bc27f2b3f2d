//! A picture that any browser shows, and that can be attached to an incident.

// Writing to a String cannot fail.
use std::fmt::Write as _;

use super::{Drawing, Mark, Node, Shape, layout};
use crate::model::Certainty;

/// Width of a character and height of a line of the 12-pixel monospace font, pixels.
const CHARACTER: f64 = 7.3;
const LINE: f64 = 15.0;
const PADDING: f64 = 10.0;
/// Between columns, and between rows.
const GAP: f64 = 60.0;
const ROW_GAP: f64 = 14.0;
const MARGIN: f64 = 20.0;

/// A node's rectangle.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

pub(super) fn render(drawing: &Drawing) -> String {
    let lines: Vec<Vec<String>> = drawing.nodes.iter().map(|node| lines(drawing, node)).collect();
    let cells = layout::cells(drawing);
    let tallest = lines.iter().map(Vec::len).max().unwrap_or(1) as f64;
    let row_height = tallest * LINE + 2.0 * PADDING + ROW_GAP;
    let columns = cells.iter().map(|cell| cell.column).max().map_or(0, |most| most + 1);
    let widths: Vec<f64> = (0..columns)
        .map(|column| {
            let here = cells.iter().zip(&lines).filter(|(cell, _)| cell.column == column);
            here.map(|(_, lines)| width(lines)).fold(0.0, f64::max)
        })
        .collect();
    // Column 0 is the rightmost.
    let left = |column: usize| {
        MARGIN + widths.get(column + 1..).unwrap_or_default().iter().map(|width| width + GAP).sum::<f64>()
    };
    let areas: Vec<Area> = cells
        .iter()
        .zip(&lines)
        .map(|(cell, lines)| Area {
            x: left(cell.column),
            y: MARGIN + cell.row * row_height,
            width: width(lines),
            height: lines.len() as f64 * LINE + 2.0 * PADDING,
        })
        .collect();
    // Room for the ways back.
    let back = if drawing.arrows.iter().any(|arrow| arrow.in_cycle) { GAP } else { 0.0 };
    let right = areas.iter().map(|area| area.x + area.width).fold(0.0, f64::max) + MARGIN;
    let bottom = areas.iter().map(|area| area.y + area.height).fold(0.0, f64::max) + MARGIN + LINE + back;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{right:.0}\" height=\"{bottom:.0}\" \
         viewBox=\"0 0 {right:.0} {bottom:.0}\" font-family=\"monospace\" font-size=\"12\">\n<title>who waits for whom</title>\n\
         <defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\">\
         <path d=\"M0,0 L8,4 L0,8 z\" fill=\"context-stroke\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for arrow in &drawing.arrows {
        let (Some(from), Some(to)) = (areas.get(arrow.from), areas.get(arrow.to)) else { continue };
        let color = if arrow.in_cycle { "#dc2626" } else { "#475569" };
        let dash = if arrow.certainty == Certainty::Proven { "" } else { " stroke-dasharray=\"5 4\"" };
        writeln!(text, "<path d=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"{dash} marker-end=\"url(#tip)\"><title>{}</title></path>",
            curve(*from, *to),
            escaped(&format!("{}: {}", arrow.certainty.name(), arrow.evidence))
        )
        .ok();
    }
    for ((node, lines), area) in drawing.nodes.iter().zip(&lines).zip(&areas) {
        shape(&mut text, node, lines, *area);
    }
    let y = bottom - MARGIN / 2.0;
    let rest = match drawing.left_out {
        0 => String::new(),
        more => format!(" · {more} more threads are not drawn"),
    };
    writeln!(text, "<text x=\"{MARGIN}\" y=\"{y:.0}\" fill=\"#64748b\">an arrow leads from who waits to what, and to who has to act; dashed: likely{rest}</text>\n</svg>").ok();
    text
}

/// A node's lines; a thread says first whose it is.
fn lines(drawing: &Drawing, node: &Node) -> Vec<String> {
    let group =
        node.group.filter(|_| node.shape == Shape::Thread).and_then(|group| drawing.groups.get(group));
    group.into_iter().chain(&node.lines).cloned().collect()
}

fn width(lines: &[String]) -> f64 {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64 * CHARACTER + 2.0 * PADDING
}

/// From the right side of one to the left side of the other; a way back goes around below, from foot to foot.
fn curve(from: Area, to: Area) -> String {
    if to.x > from.x + from.width {
        let (x1, y1) = (from.x + from.width, from.y + from.height / 2.0);
        let (x2, y2) = (to.x, to.y + to.height / 2.0);
        let middle = f64::midpoint(x1, x2);
        return format!("M{x1:.1},{y1:.1} C{middle:.1},{y1:.1} {middle:.1},{y2:.1} {x2:.1},{y2:.1}");
    }
    let (x1, y1) = (from.x + from.width / 2.0, from.y + from.height);
    let (x2, y2) = (to.x + to.width / 2.0, to.y + to.height);
    let below = y1.max(y2) + GAP;
    format!("M{x1:.1},{y1:.1} C{x1:.1},{below:.1} {x2:.1},{below:.1} {x2:.1},{y2:.1}")
}

fn shape(text: &mut String, node: &Node, lines: &[String], area: Area) {
    let Area { x, y, width, height } = area;
    let (fill, radius) = match node.shape {
        Shape::Thread => ("#f8fafc", 4.0),
        Shape::Process => ("#e2e8f0", 0.0),
        Shape::Object => ("#fef9c3", height / 2.0),
    };
    let (stroke, thick) = match node.mark {
        Mark::Plain => ("#94a3b8", 1),
        Mark::Root => ("#d97706", 3),
        Mark::Cycle => ("#dc2626", 3),
    };
    writeln!(text, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius:.0}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"{thick}\"/>").ok();
    for (index, line) in lines.iter().enumerate() {
        let baseline = y + PADDING + (index as f64 + 0.8) * LINE;
        writeln!(text, "<text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>", x + PADDING, escaped(line)).ok();
    }
}

/// Inside an XML element. Control characters were escaped before; those left that XML forbids are replaced.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            _ => safe.push(character),
        }
    }
    safe
}
