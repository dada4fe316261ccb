//! The page: an index, then every result with its plots, comparisons, tables and manifest.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Entry;
use crate::summary::shown;
use crate::{Cell, Comparison, Failure, Manifest, Plot, Provenance, Table, Verdict, draw};

const STYLE: &str = include_str!("page.css");

/// The page as the text of an HTML file.
pub fn document(entries: &[Entry]) -> Result<String, Failure> {
    let sections = entries.iter().map(section).collect::<Result<Vec<Markup>, Failure>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Plimsoll: experiments of the papers" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Experiments of the papers" }
                p.quiet {
                    (entries.len()) " results, put together " (format!("{:.0}", Timestamp::now())) ". "
                    b { "measured" } ": real processes and kernels. "
                    b { "emulated" } ": the backends are emulated, everything else is real. "
                    b { "simulated" } ": everything is, in simulated time. "
                    b { "reported" } ": the paper's own numbers."
                }
                (index(entries))
                @for section in &sections { (section) }
            }
        }
    };
    Ok(page.into_string())
}

fn index(entries: &[Entry]) -> Markup {
    html! {
        nav.wide {
            table {
                thead { tr { th { "experiment" } th { "" } th { "what" } th { "from" } th { "beside the paper" } } }
                tbody {
                    @for Entry { result, manifest } in entries {
                        @let id = &result.experiment;
                        tr {
                            td { a href={ "#" (id.name) } { (id.name) } }
                            td { (id.paper) ", " (id.figure) }
                            td { (id.title) @if manifest.quick { " " (quick()) } }
                            td { (provenances(&manifest.provenance)) }
                            td { (verdicts(&result.outcome.comparisons)) }
                        }
                    }
                }
            }
        }
    }
}

fn quick() -> Markup {
    html! { span class="badge differs" title="It shows that the experiment works; its numbers get no verdict." { "quick run" } }
}

fn provenances(all: &[Provenance]) -> Markup {
    html! { @for one in all { span.badge { (one.name()) } " " } }
}

/// How many of each there are.
fn verdicts(comparisons: &[Comparison]) -> Markup {
    let all = [
        Verdict::Better,
        Verdict::Agrees,
        Verdict::Fitted,
        Verdict::Differs,
        Verdict::Reached,
        Verdict::Missed,
        Verdict::NotComparable,
    ];
    html! {
        @for verdict in all {
            @let count = comparisons.iter().filter(|c| c.verdict() == verdict).count();
            @if count > 0 { span class={ "badge " (class(verdict)) } { (count) " " (verdict.name()) } " " }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees | Verdict::Reached => "agrees",
        Verdict::Better => "better",
        Verdict::Differs | Verdict::Missed => "differs",
        Verdict::Fitted | Verdict::NotComparable | Verdict::QuickRun => "",
    }
}

fn section(Entry { result, manifest }: &Entry) -> Result<Markup, Failure> {
    let (id, outcome) = (&result.experiment, &result.outcome);
    let plots = outcome.plots.iter().map(figure).collect::<Result<Vec<Markup>, Failure>>()?;
    Ok(html! {
        section id=(id.name) {
            h2 { (id.name) ": " (id.title) }
            div.quiet {
                (id.paper) ", " (id.figure) " · " (provenances(&manifest.provenance))
                @if manifest.quick { (quick()) }
            }
            blockquote { (id.claim) }
            @for plot in &plots { (plot) }
            @if !outcome.comparisons.is_empty() { (compared(&outcome.comparisons)) }
            @if !outcome.notes.is_empty() { ul { @for note in &outcome.notes { li { (note) } } } }
            @for one in &outcome.tables { details { summary { (one.title) } (table(one)) } }
            details { summary { "How it was made" } pre { (manifest.command) } (made(manifest, &id.citation)) }
        }
    })
}

fn figure(plot: &Plot) -> Result<Markup, Failure> {
    let drawing = PreEscaped(draw::document(plot)?);
    Ok(html! { figure role="img" aria-label=(plot.title) { (drawing) } })
}

fn compared(all: &[Comparison]) -> Markup {
    html! {
        div.wide {
            table.compared {
                thead { tr { th { "what" } th.number { "paper" } th.number { "ours" } th { "from" } th { "" } th { "why" } } }
                tbody {
                    @for c in all {
                        tr {
                            td { (c.what) }
                            td.number data-head="paper" {
                                (with_unit(&c.paper, &c.unit))
                                @if !c.tolerance.is_empty() { div.quiet { (c.tolerance) } }
                            }
                            td.number data-head="ours" { (with_unit(&c.ours, &c.unit)) }
                            td { span.badge { (c.provenance.name()) } }
                            td { span class={ "badge " (class(c.verdict())) } { (c.verdict().name()) } }
                            td.why { (c.reason()) }
                        }
                    }
                }
            }
        }
    }
}

fn with_unit(number: &Cell, unit: &str) -> String {
    let text = shown(number);
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}

fn table(table: &Table) -> Markup {
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        @for column in &table.columns { th title=(column.unit) { (column.name) } }
                        th { "provenance" }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for cell in &row.cells {
                                td.number[matches!(cell, Cell::Number(_))] { (shown(cell)) }
                            }
                            td { span.badge { (row.provenance.name()) } }
                        }
                    }
                }
            }
        }
    }
}

fn made(manifest: &Manifest, citation: &str) -> Markup {
    let unknown = || "unknown".to_owned();
    let or = |text: &Option<String>| text.clone().unwrap_or_else(unknown);
    let programs: Vec<&str> = manifest.programs.values().map(String::as_str).collect();
    let programs = if programs.is_empty() { "none".to_owned() } else { programs.join("; ") };
    let facts = [
        ("paper", citation.to_owned()),
        ("seed", manifest.seed.to_string()),
        ("started", manifest.started.clone()),
        ("took", format!("{:.1} s", manifest.duration_seconds)),
        ("Plimsoll", format!("{}, commit {}", manifest.plimsoll, or(&manifest.commit))),
        ("compiler", or(&manifest.rustc)),
        ("HAProxy", or(&manifest.haproxy)),
        ("other programs", programs),
        ("CBC", or(&manifest.cbc)),
        ("kernel", or(&manifest.kernel)),
        ("processor", format!("{}, {} cores", or(&manifest.cpu), manifest.cores)),
    ];
    html! { dl { @for (name, fact) in facts { dt { (name) } dd { (fact) } } } }
}
