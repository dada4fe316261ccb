//! Tables as CSV (RFC 4180): a head with names, one line per row, the provenance last.

use crate::{Cell, Table};

/// The table as the text of a CSV file.
pub fn document(table: &Table) -> String {
    let mut text = String::new();
    let heads = table.columns.iter().map(|column| field(&column.name));
    line(&mut text, heads.chain(["provenance".to_owned()]));
    for row in &table.rows {
        let cells = row.cells.iter().map(|cell| match cell {
            Cell::Number(value) => value.to_string(),
            Cell::Text(value) => field(value),
            Cell::Empty => String::new(),
        });
        line(&mut text, cells.chain([row.provenance.to_string()]));
    }
    text
}

fn line(text: &mut String, fields: impl Iterator<Item = String>) {
    let fields: Vec<String> = fields.collect();
    text.push_str(&fields.join(","));
    text.push('\n');
}

fn field(value: &str) -> String {
    if value.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provenance;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let mut table = Table::new("t", "T", &[("name", ""), ("latency_ms", "ms")]);
        table.row(Provenance::Measured, ["a, \"b\"\nc".into(), 1.5.into()]);
        table.row(Provenance::Reported, ["plain".into()]);
        assert_eq!(
            document(&table),
            "name,latency_ms,provenance\n\"a, \"\"b\"\"\nc\",1.5,measured\nplain,,reported\n"
        );
    }
}
