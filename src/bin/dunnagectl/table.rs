//! Tables that fit the terminal.

use crate::output::{Colour, Look, clean, cut};

/// What is between columns.
const GAP: usize = 2;

/// Below this no column is cut, so that something of it can be read.
const NARROW: usize = 8;

/// A word in a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    /// In a colour.
    pub(crate) fn coloured(text: &str, colour: Colour) -> Self {
        Self { text: clean(text), colour }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::coloured(text.as_ref(), Colour::Plain)
    }
}

/// Lines of words below each other.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// With these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| Cell::coloured(heading, Colour::Bold)).collect()] }
    }

    /// One more line.
    pub(crate) fn add(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// How it is shown: where it is too wide, columns are cut.
    pub(crate) fn render(&self, look: Look) -> String {
        let widths = self.widths(look.width);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            let mut skipped = 0;
            for (cell, &width) in row.iter().zip(&widths) {
                let shown = cut(&cell.text, width);
                // Only before what follows: no line ends with spaces.
                if !shown.is_empty() {
                    line.extend(std::iter::repeat_n(' ', skipped));
                    skipped = 0;
                }
                skipped += width - shown.chars().count() + GAP;
                if shown.is_empty() {
                    continue;
                }
                line.push_str(&look.paint(&shown, cell.colour));
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn widths(&self, room: Option<usize>) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(width).collect();
        if let Some(room) = room {
            while widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1) > room {
                // First the last column, which is the longest to read, then the widest.
                let last_is_wide = widths.last().is_some_and(|&width| width > NARROW);
                let widest = if last_is_wide { widths.last_mut() } else { widths.iter_mut().max() };
                match widest {
                    Some(width) if *width > NARROW => *width -= 1,
                    _ => break,
                }
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["ID", "STATE", "COMMAND"]);
        table.add(vec!["0123456789ab".into(), "running".into(), "sleep 1000000000000".into()]);
        table.add(vec!["box".into(), Cell::coloured("gone", Colour::Red), "".into()]);
        table
    }

    fn look(width: Option<usize>) -> Look {
        Look { coloured: false, width }
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let text = table().render(look(None));
        let wanted = "ID            STATE    COMMAND\n\
                      0123456789ab  running  sleep 1000000000000\n\
                      box           gone\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn what_does_not_fit_is_cut_where_most_is() {
        let text = table().render(look(Some(36)));
        assert!(text.lines().all(|line| line.chars().count() <= 36), "{text}");
        assert!(text.contains("0123456789ab  running  sleep 100000…"), "{text}");
        // Nothing is cut to nothing.
        assert!(table().render(look(Some(1))).contains("running"), "too narrow for anybody");
    }

    #[test]
    fn colours_have_no_width() {
        let coloured = table().render(Look { coloured: true, width: Some(36) });
        assert!(coloured.contains("\x1b[31mgone\x1b[0m\n"), "{coloured:?}");
    }
}
