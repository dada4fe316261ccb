//! Aligned tables. Two spaces between columns, no lines: easy on the eye and on `awk`.

use crate::{Screen, Tone, printable};

/// Spaces between two columns.
const GAP: &str = "  ";
/// The last column wraps no narrower than this.
const LEAST_WRAP: usize = 24;

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    right: bool,
}

/// A column of words.
pub const fn left(title: &'static str) -> Column {
    Column { title, right: false }
}

/// A column of numbers.
pub const fn right(title: &'static str) -> Column {
    Column { title, right: true }
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell in this tone.
    pub fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Cell { text: printable(text.as_ref()), tone }
    }

    /// Its text as the screen shows it.
    pub fn painted(&self, screen: &Screen) -> String {
        screen.paint(self.tone, &self.text)
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::toned(text, Tone::Plain)
    }
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table of these columns.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Table { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize_with(self.columns.len(), Cell::default);
        self.rows.push(cells);
    }

    /// The table as lines, each with its line end. Where the screen's width is known, the last column
    /// wraps within it.
    pub fn render(&self, screen: &Screen) -> String {
        let heads = self.columns.iter().map(|c| Cell::toned(c.title, Tone::Head)).collect();
        let widths = self.widths();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            self.line(&mut text, row, &widths, screen);
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let width = |(i, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| length(&row[i].text));
            cells.chain([length(column.title)]).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    fn line(&self, text: &mut String, row: &[Cell], widths: &[usize], screen: &Screen) {
        let Some(((last, cells), last_column)) = row.split_last().zip(self.columns.last()) else {
            return;
        };
        let mut indent = 0;
        for ((cell, column), width) in cells.iter().zip(&self.columns).zip(widths) {
            pad(text, cell, column.right, *width, screen);
            text.push_str(GAP);
            indent += width + GAP.len();
        }
        if last_column.right {
            pad(text, last, true, widths[cells.len()], screen);
        } else {
            let room = screen.width.map(|width| width.saturating_sub(indent).max(LEAST_WRAP));
            for (i, part) in wrap(&last.text, room).iter().enumerate() {
                if i > 0 {
                    text.push('\n');
                    text.extend(std::iter::repeat_n(' ', indent));
                }
                text.push_str(&screen.paint(last.tone, part));
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
}

fn pad(text: &mut String, cell: &Cell, right: bool, width: usize, screen: &Screen) {
    let spaces = std::iter::repeat_n(' ', width.saturating_sub(length(&cell.text)));
    let painted = cell.painted(screen);
    if right {
        text.extend(spaces);
        text.push_str(&painted);
    } else {
        text.push_str(&painted);
        text.extend(spaces);
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The text in pieces of at most this many characters, broken between words; a longer word stays whole.
pub fn wrap(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let fits =
            lines.last().is_none_or(|l| l.is_empty() || length(l) + 1 + length(word) <= room);
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([left("BACKEND"), right("WEIGHT"), left("WHY")]);
        table.row(["s1".into(), "192".into(), "packed for 400 requests per second".into()]);
        table.row(["long-name".into(), Cell::toned("7", Tone::Bad)]);
        table
    }

    #[test]
    fn columns_align_and_lines_carry_no_trailing_spaces() {
        let expected = "\
BACKEND    WEIGHT  WHY
s1            192  packed for 400 requests per second
long-name       7
";
        assert_eq!(table().render(&Screen::PLAIN), expected);
    }

    #[test]
    fn the_last_column_wraps_on_a_narrow_screen() {
        let narrow = Screen { color: false, width: Some(20) };
        let expected = "\
BACKEND    WEIGHT  WHY
s1            192  packed for 400 requests
                   per second
long-name       7
";
        assert_eq!(table().render(&narrow), expected);
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let color = Screen { color: true, width: None };
        assert!(table().render(&color).contains("long-name       \x1b[1;31m7\x1b[0m"));
    }
}
