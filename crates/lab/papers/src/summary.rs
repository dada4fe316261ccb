//! A result as Markdown, for whoever opens its directory.

use std::fmt::Write;

use crate::{Cell, Comparison, Manifest, PlotKind, ResultFile, Table};

/// A table of more is only in its own file.
const MOST_ROWS: usize = 300;

/// The text of `README.md`.
pub fn document(result: &ResultFile, manifest: &Manifest) -> String {
    let id = &result.experiment;
    let mut text = format!(
        "# {}: {}\n\n{}, {} ({}).\n\n> {}\n\n```sh\n{}\n```\n",
        id.name, id.title, id.paper, id.figure, id.citation, id.claim, manifest.command
    );
    if manifest.quick {
        text.push_str(
            "\nA quick run: it shows that the experiment works, its numbers get no verdict.\n",
        );
    }
    if !result.outcome.comparisons.is_empty() {
        text.push_str("\n## The paper and ours\n\n");
        comparisons(&mut text, &result.outcome.comparisons);
    }
    for plot in &result.outcome.plots {
        let kind = match plot.kind {
            PlotKind::Lines(_) => "lines",
            PlotKind::Bars { .. } => "bars",
        };
        put(&mut text, format_args!("\n![{} ({kind})]({}.svg)\n", plot.title, plot.name));
    }
    for table in &result.outcome.tables {
        put(&mut text, format_args!("\n## {}\n\n", table.title));
        markdown(&mut text, table);
    }
    if !result.outcome.notes.is_empty() {
        text.push_str("\n## Notes\n\n");
        for note in &result.outcome.notes {
            put(&mut text, format_args!("- {note}\n"));
        }
    }
    text
}

fn comparisons(text: &mut String, all: &[Comparison]) {
    text.push_str(
        "| what | paper | ours | unit | tolerance | | why |\n|---|---|---|---|---|---|---|\n",
    );
    for c in all {
        let cells = [
            escape(&c.what),
            escape(&shown(&c.paper)),
            format!("{} ({})", escape(&shown(&c.ours)), c.provenance),
            escape(&c.unit),
            escape(&c.tolerance),
            c.verdict().name().to_owned(),
            escape(&c.reason()),
        ];
        put(text, format_args!("| {} |\n", cells.join(" | ")));
    }
}

fn markdown(text: &mut String, table: &Table) {
    if table.rows.len() > MOST_ROWS {
        let (rows, name) = (table.rows.len(), &table.name);
        return put(text, format_args!("{rows} rows: [{name}.csv]({name}.csv)\n"));
    }
    let heads: Vec<String> = table.columns.iter().map(|column| escape(&column.name)).collect();
    put(text, format_args!("| {} | provenance |\n", heads.join(" | ")));
    put(text, format_args!("|{}\n", "---|".repeat(heads.len() + 1)));
    for row in &table.rows {
        let cells: Vec<String> = row.cells.iter().map(|cell| escape(&shown(cell))).collect();
        put(text, format_args!("| {} | {} |\n", cells.join(" | "), row.provenance));
    }
}

/// A cell or a compared value for people.
pub fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Number(number) => figures(*number),
        Cell::Text(text) => text.clone(),
        Cell::Empty => String::new(),
    }
}

/// To three figures, for the marks of a plot: 0.25, 1200, 25k.
pub fn figures_short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let size = |value: f64| value.abs().log10().floor() as i32;
    let (value, suffix) = match size(value) {
        ..-4 | 10.. => return format!("{value:.0e}"),
        6.. => (value / 1e6, "M"),
        4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = (2 - size(value)).max(0) as usize;
    let text = format!("{value:.digits$}");
    let whole = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{suffix}", if text.contains('.') { whole } else { &text })
}

/// Whole numbers whole, others to four figures.
pub fn figures(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value}");
    }
    let size = value.abs().log10().floor() as i32;
    if size < -5 {
        return format!("{value:.2e}");
    }
    let digits = (3 - size).max(0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn put(text: &mut String, args: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(args);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provenance;

    #[test]
    fn a_long_table_is_named_and_not_shown() {
        let mut table = Table::new("all", "All", &[("n", "")]);
        let shown = |table: &Table| {
            let mut text = String::new();
            markdown(&mut text, table);
            text
        };
        (0..MOST_ROWS).for_each(|n| table.row(Provenance::Simulated, [n.into()]));
        assert_eq!(shown(&table).lines().count(), MOST_ROWS + 2);
        table.row(Provenance::Simulated, [0.0.into()]);
        assert_eq!(shown(&table), "301 rows: [all.csv](all.csv)\n");
    }

    #[test]
    fn numbers_keep_four_figures() {
        for (value, text) in [
            (0.0, "0"),
            (30.0, "30"),
            (0.0123456, "0.01235"),
            (1.5, "1.5"),
            (99.999, "100"),
            (12345.678, "12346"),
            (-0.25, "-0.25"),
            (1.5e-7, "1.50e-7"),
            (60000.0, "60000"),
        ] {
            assert_eq!(figures(value), text);
        }
    }
}
