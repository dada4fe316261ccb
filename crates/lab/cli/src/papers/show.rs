//! One result for people, on a terminal.

use plimsoll_papers::{Ran, figures, shown_value};
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Screen, Tone};

use super::tone;

/// What came of a run: the paper's numbers beside ours, notes, and where the files are.
pub fn text(ran: &Ran) -> String {
    let screen = Screen::stdout();
    let id = &ran.result.experiment;
    let mut text = screen.paint(Tone::Head, &format!("{}: {} ({})", id.name, id.title, id.figure));
    text.push('\n');
    if ran.manifest.quick {
        text.push_str("a quick run: its numbers get no verdict\n");
    }
    text.push('\n');
    let mut table = Table::new([
        left("WHAT"),
        right("PAPER"),
        right("OURS"),
        left("UNIT"),
        left("FROM"),
        left("TOLERANCE"),
        left("VERDICT"),
        left("WHY"),
    ]);
    for c in &ran.result.outcome.comparisons {
        table.row([
            Cell::from(&c.what),
            Cell::from(shown_value(&c.paper)),
            Cell::from(shown_value(&c.ours)),
            Cell::from(&c.unit),
            Cell::from(c.provenance.name()),
            Cell::from(&c.tolerance),
            Cell::toned(c.verdict().name(), tone(c.verdict())),
            Cell::from(c.reason()),
        ]);
    }
    text.push_str(&table.render(&screen));
    for note in &ran.result.outcome.notes {
        text.push_str(&format!("\n{note}\n"));
    }
    text.push_str(&format!(
        "\n{} s; {}\n\n",
        figures(ran.manifest.duration_seconds),
        ran.dir.display()
    ));
    text
}
