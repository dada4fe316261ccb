//! What an experiment found: tables, plots, and the paper's numbers beside ours.

use serde::{Deserialize, Serialize};

use crate::{Plot, Provenance};

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

/// How our number stands to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same within what the set-up allows.
    Agrees,
    /// Better than the paper's, in the sense of the paper.
    Better,
    /// Something else; the sentence says why.
    Differs,
    /// Two different things; the sentence says why.
    NotComparable,
}

impl Verdict {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Better => "better",
            Verdict::Differs => "differs",
            Verdict::NotComparable => "not comparable",
        }
    }

    /// Agrees when it is so, differs when it is not.
    pub fn agrees_if(yes: bool) -> Self {
        if yes { Verdict::Agrees } else { Verdict::Differs }
    }

    /// Agrees when ours is within this part of the paper's (0.1: ±10 %), differs when it is not.
    pub fn within(part: f64, paper: f64, ours: f64) -> Self {
        let near = (ours - paper).abs() <= part * paper.abs();
        Verdict::agrees_if(near)
    }

    /// Better when ours is less than the paper's by more than this part of it; agrees when it is within
    /// it, differs when it is more.
    pub fn less_is_better(part: f64, paper: f64, ours: f64) -> Self {
        if ours < paper - part * paper.abs() {
            Verdict::Better
        } else {
            Verdict::within(part, paper, ours)
        }
    }
}

/// One number of the paper beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was compared.
    pub what: String,
    /// What the paper says.
    pub paper: Value,
    /// What we found.
    pub ours: Value,
    /// The unit of both; empty when they have none.
    pub unit: String,
    /// How they stand to each other.
    pub verdict: Verdict,
    /// Where ours comes from.
    pub provenance: Provenance,
    /// Why they differ, in a sentence; may be empty only where they agree.
    pub why: String,
}

impl Comparison {
    /// All of it, in the order of the fields.
    pub fn new(
        what: impl Into<String>,
        paper: impl Into<Value>,
        ours: impl Into<Value>,
        unit: &str,
        verdict: Verdict,
        provenance: Provenance,
        why: impl Into<String>,
    ) -> Self {
        let (what, paper, ours) = (what.into(), paper.into(), ours.into());
        let (unit, why) = (unit.to_owned(), why.into());
        Comparison { what, paper, ours, unit, verdict, provenance, why }
    }
}
