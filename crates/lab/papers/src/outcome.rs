//! What an experiment found: tables, plots, and the paper's numbers beside ours.

use serde::{Deserialize, Serialize};

use crate::{Comparison, Plot, Provenance};

/// What came of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The numbers, each table a CSV file.
    pub tables: Vec<Table>,
    /// The pictures, each an SVG file.
    pub plots: Vec<Plot>,
    /// The paper's numbers beside ours.
    pub comparisons: Vec<Comparison>,
    /// What a reader must know to judge them, one sentence or two each.
    pub notes: Vec<String>,
}

/// Named columns; every row says where its numbers come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The name of its file, without `.csv`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Its columns, without that of the provenance.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name: `snake_case`, with the unit where there is one, as in `latency_ms`.
    pub name: String,
    /// Its unit, for people; empty when it has none.
    pub unit: String,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
    /// Nothing: not measured, or there is none.
    Empty,
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        // JSON has no other numbers.
        if value.is_finite() { Cell::Number(value) } else { Cell::Text(value.to_string()) }
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Cell::Number(f64::from(value))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Cell::Number(value as f64)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Cell::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Cell::Text(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Empty, Into::into)
    }
}

impl Table {
    /// An empty table; columns are names and units.
    pub fn new(name: &str, title: &str, columns: &[(&str, &str)]) -> Self {
        let column = |(name, unit): &(&str, &str)| Column {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
        };
        Table {
            name: name.to_owned(),
            title: title.to_owned(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, provenance: Provenance, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::Empty);
        self.rows.push(Row { provenance, cells });
    }
}

/// A value of the paper or of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// One number.
    Number(f64),
    /// A range, a ratio such as 1:2:4, or a word.
    Text(String),
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        if value.is_finite() { Value::Number(value) } else { Value::Text(value.to_string()) }
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}
