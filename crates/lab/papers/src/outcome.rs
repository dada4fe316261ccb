//! What an experiment found: tables, plots, and the paper's numbers beside ours.

use serde::{Deserialize, Serialize};

use crate::{Comparison, Failure, Plot, Provenance};

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

/// A row as a type: its fields are columns, for [`Table::push`].
pub(crate) struct Typed<Fields> {
    /// Name and unit of each field.
    pub columns: &'static [(&'static str, &'static str)],
    /// Their values.
    pub fields: Fields,
}

/// Adds a row to a table, as a type of its own, a line a column: `name: value;`, or `name: value, "unit for
/// people";` where the name does not say all. The name is `snake_case`, with the unit where there is one.
macro_rules! row {
    ($table:ident, $from:expr, { $($name:ident: $value:expr $(, $unit:literal)?;)+ }) => {{
        #[allow(non_camel_case_types, reason = "every field has a type of its own, called after it")]
        let row = {
            #[derive(serde::Serialize)]
            struct Fields<$($name),+> {
                $($name: $name),+
            }
            $crate::outcome::Typed {
                columns: &[$((stringify!($name), concat!("" $(, $unit)?))),+],
                fields: Fields { $($name: $value),+ },
            }
        };
        $table.push($from, row)
    }};
}
pub(crate) use row;

impl Column {
    fn new(name: &str, unit: &str) -> Self {
        Column { name: name.to_owned(), unit: unit.to_owned() }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One cell of a table, or one of two compared values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// A word, or a range or ratio such as 1:2:4.
    Text(String),
    /// Nothing: not measured, or there is none.
    Empty,
}

impl Cell {
    /// From the text of a CSV file.
    fn read(text: &str) -> Self {
        match text.parse::<f64>() {
            Ok(number) => number.into(),
            Err(_) if text.is_empty() => Cell::Empty,
            Err(_) => text.into(),
        }
    }
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
        Table {
            name: name.to_owned(),
            title: title.to_owned(),
            columns: columns.iter().map(|(name, unit)| Column::new(name, unit)).collect(),
            rows: Vec::new(),
        }
    }

    /// An empty table whose columns are those of its first row, see [`row!`].
    pub(crate) fn empty(name: &str, title: &str) -> Self {
        Table::new(name, title, &[])
    }

    /// Adds a row for [`row!`]. The first one's fields are the table's columns; others may lack some.
    ///
    /// # Errors
    /// When a value is no number, word or nothing, or a field is no column.
    pub(crate) fn push<Fields: Serialize>(
        &mut self,
        provenance: Provenance,
        row: Typed<Fields>,
    ) -> Result<(), Failure> {
        // `r#type` is called so because of Rust's keyword.
        let columns = row.columns.iter().map(|(name, unit)| (name.trim_start_matches("r#"), unit));
        if self.columns.is_empty() {
            self.columns = columns.clone().map(|(name, unit)| Column::new(name, unit)).collect();
        }
        let trouble = |error: String| Failure::Other(format!("table {}: {error}", self.name));
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        writer.serialize(row.fields).map_err(|error| trouble(error.to_string()))?;
        let text = writer.into_inner().map_err(|error| trouble(error.to_string()))?;
        let reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_slice());
        let mut cells = vec![Cell::Empty; self.columns.len()];
        for record in reader.into_records() {
            let record = record.map_err(|error| trouble(error.to_string()))?;
            for ((name, _), value) in columns.clone().zip(&record) {
                let place = self.columns.iter().position(|column| column.name == name);
                let place = place.ok_or_else(|| trouble(format!("no column is called {name}")))?;
                cells[place] = Cell::read(value);
            }
        }
        self.rows.push(Row { provenance, cells });
        Ok(())
    }

    /// Its text as CSV (RFC 4180): a head with names, one line per row, the provenance last.
    ///
    /// # Errors
    /// Never: it is written into memory.
    pub(crate) fn csv(&self) -> Result<String, Failure> {
        let trouble = |error: csv::Error| Failure::Other(format!("table {}: {error}", self.name));
        let mut writer = csv::Writer::from_writer(Vec::new());
        let heads = self.columns.iter().map(|column| column.name.as_str());
        writer.write_record(heads.chain(["provenance"])).map_err(trouble)?;
        for row in &self.rows {
            let cells = row.cells.iter().map(|cell| match cell {
                Cell::Number(value) => value.to_string(),
                Cell::Text(value) => value.clone(),
                Cell::Empty => String::new(),
            });
            let all = cells.chain([row.provenance.to_string()]);
            writer.write_record(all).map_err(trouble)?;
        }
        let text = writer.into_inner().map_err(|error| Failure::Other(error.to_string()))?;
        String::from_utf8(text).map_err(|error| Failure::Other(error.to_string()))
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, provenance: Provenance, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::Empty);
        self.rows.push(Row { provenance, cells });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let mut table = Table::new("t", "T", &[("name", ""), ("latency_ms", "ms")]);
        table.row(Provenance::Measured, ["a, \"b\"\nc".into(), 1.5.into()]);
        table.row(Provenance::Reported, ["plain".into()]);
        assert_eq!(
            table.csv().unwrap(),
            "name,latency_ms,provenance\n\"a, \"\"b\"\"\nc\",1.5,measured\nplain,,reported\n"
        );
    }

    #[test]
    fn a_row_is_a_type_and_its_fields_are_columns() {
        let mut table = Table::empty("t", "T");
        row!(table, Provenance::Measured, {
            r#type: "a, b";
            latency_ms: Some(7.0), "ms";
            requests: 3_u64;
        })
        .unwrap();
        row!(table, Provenance::Reported, { requests: 1; latency_ms: f64::NAN; }).unwrap();
        row!(table, Provenance::Reported, { r#type: ""; latency_ms: None::<f64>; }).unwrap();
        let columns = [("type", ""), ("latency_ms", "ms"), ("requests", "")];
        let mut same = Table::new("t", "T", &columns);
        same.row(Provenance::Measured, ["a, b".into(), 7.0.into(), 3_usize.into()]);
        same.row(Provenance::Reported, [Cell::Empty, f64::NAN.into(), 1_usize.into()]);
        same.row(Provenance::Reported, []);
        assert_eq!(table, same);
        let wrong = row!(table, Provenance::Measured, { latency: 1.0; }).unwrap_err();
        assert!(wrong.to_string().contains("no column is called latency"), "{wrong}");
    }
}
