//! Where the nodes of a picture lie.
//!
//! A thread waits for one object and most objects have one owner, so the graph is nearly a forest whose trees hang at
//! their roots: who waits for nobody is on the right, who waits for it one column to the left. General layered layouts
//! were tried (ports of dagre and of Graphviz's): they take minutes for four hundred nodes, and this takes none.

use std::collections::BTreeMap;

use super::{Drawing, Mark};

/// A node's column, 0 on the right, and its row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) column: usize,
    pub(super) row: f64,
}

/// A cell for every node, no two alike.
pub(super) fn cells(drawing: &Drawing) -> Vec<Cell> {
    let count = drawing.nodes.len();
    let (mut waiters, mut leaves_for) = (vec![Vec::new(); count], vec![0_usize; count]);
    for arrow in &drawing.arrows {
        if let (Some(into), Some(out)) = (waiters.get_mut(arrow.to), leaves_for.get_mut(arrow.from)) {
            into.push(arrow.from);
            *out += 1;
        }
    }
    let mut layout = Layout { waiters, cells: vec![None; count], next_row: 0.0, by_column: BTreeMap::new() };
    // Who waits for nobody first, then one of each cycle, then what is left.
    let mut starts: Vec<usize> = (0..count).collect();
    let is_cycle = |node: usize| drawing.nodes.get(node).is_some_and(|node| node.mark == Mark::Cycle);
    let waits = |node: usize| leaves_for.get(node).is_some_and(|&out| out > 0);
    starts.sort_by_key(|&node| (waits(node), !is_cycle(node), node));
    for start in starts {
        layout.place(start);
    }
    layout.cells.into_iter().map(Option::unwrap_or_default).collect()
}

struct Layout {
    waiters: Vec<Vec<usize>>,
    cells: Vec<Option<Cell>>,
    next_row: f64,
    /// The lowest row taken in each column.
    by_column: BTreeMap<usize, f64>,
}

impl Layout {
    /// Places a node and, as its children, all that wait for it and have no place yet. Depth first, with a stack of its
    /// own: a chain can be as long as a process has threads.
    fn place(&mut self, start: usize) {
        enum Step {
            Enter(usize, usize),
            Leave(usize, usize, Vec<usize>),
        }
        let mut steps = vec![Step::Enter(start, 0)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(node, column) => {
                    let Some(cell @ None) = self.cells.get_mut(node) else { continue };
                    *cell = Some(Cell { column, row: 0.0 });
                    let children: Vec<usize> = self.waiters.get(node).cloned().unwrap_or_default();
                    let children: Vec<usize> =
                        children.into_iter().filter(|&child| self.cells.get(child) == Some(&None)).collect();
                    steps.push(Step::Leave(node, column, children.clone()));
                    steps.extend(children.into_iter().rev().map(|child| Step::Enter(child, column + 1)));
                }
                Step::Leave(node, column, children) => {
                    let is_child = |cell: &&Cell| cell.column == column + 1;
                    let own =
                        children.iter().filter_map(|&child| self.cells.get(child)?.as_ref()).filter(is_child);
                    let rows: Vec<f64> = own.map(|cell| cell.row).collect();
                    let middle = match (rows.first(), rows.last()) {
                        (Some(first), Some(last)) => f64::midpoint(*first, *last),
                        _ => self.next_row,
                    };
                    let free = self.by_column.get(&column).map_or(0.0, |row| row + 1.0);
                    let row = middle.max(free);
                    self.by_column.insert(column, row);
                    self.next_row = self.next_row.max(row + if rows.is_empty() { 1.0 } else { 0.0 });
                    if let Some(cell) = self.cells.get_mut(node) {
                        *cell = Some(Cell { column, row });
                    }
                }
            }
        }
    }
}
