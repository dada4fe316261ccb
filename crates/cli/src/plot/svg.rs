//! Plots as an SVG file: one panel per chart, no scripts, no fonts of its own.

use std::fmt::Write;

use plimsoll_terminal::{number, printable};

use super::chart::{Chart, Span};

const PANEL_WIDTH: f64 = 320.0;
const PANEL_HEIGHT: f64 = 230.0;
/// Room around the plot within its panel.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 36.0;
/// Panels on one line.
const ACROSS: usize = 3;
/// Marks on each axis.
const TICKS: u32 = 4;

/// The charts as one SVG document.
pub fn document(charts: &[Chart]) -> String {
    let across = charts.len().clamp(1, ACROSS);
    let width = PANEL_WIDTH * across as f64;
    let height = PANEL_HEIGHT * charts.len().div_ceil(across).max(1) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"11\">\n\
         <title>Latency over load</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (i, chart) in charts.iter().enumerate() {
        let (x, y) = (PANEL_WIDTH * (i % across) as f64, PANEL_HEIGHT * (i / across) as f64);
        put(&mut text, format_args!("<g transform=\"translate({x} {y})\">\n"));
        panel(&mut text, chart);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, chart: &Chart) {
    let span = chart.span();
    let title = escape(&chart.title);
    put(text, format_args!("<text x=\"{LEFT}\" y=\"18\" font-weight=\"600\">{title}</text>\n"));
    let note = escape(&chart.note);
    put(text, format_args!("<text x=\"{LEFT}\" y=\"34\" fill=\"#626d7c\">{note}</text>\n"));
    axes(text, span);
    let capacity = at((chart.capacity_rps, 0.0), span).0;
    let foot = PANEL_HEIGHT - BOTTOM;
    put(
        text,
        format_args!(
            "<path d=\"M{capacity:.1} {TOP}V{foot}\" stroke=\"#b3261e\" stroke-dasharray=\"4 3\" \
             fill=\"none\"><title>capacity</title></path>\n"
        ),
    );
    for point in &chart.points {
        let (x, y) = at(*point, span);
        put(
            text,
            format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"#97a1af\"/>\n"),
        );
    }
    let line = chart.visible_line(span);
    if !line.is_empty() {
        text.push_str("<polyline fill=\"none\" stroke=\"#2563a8\" stroke-width=\"2\" points=\"");
        for point in line {
            let (x, y) = at(point, span);
            put(text, format_args!("{x:.1},{y:.1} "));
        }
        text.push_str("\"/>\n");
    }
    if let Some(now) = chart.now {
        let (x, y) = at(now, span);
        put(
            text,
            format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"#e08a00\"><title>now</title>\
                 </circle>\n"
            ),
        );
    }
}

fn axes(text: &mut String, span: Span) {
    let (right, foot) = (PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM);
    put(
        text,
        format_args!(
            "<path d=\"M{LEFT} {TOP}V{foot}H{right}\" stroke=\"#626d7c\" fill=\"none\"/>\n"
        ),
    );
    text.push_str("<g fill=\"#626d7c\">\n");
    for tick in 0..=TICKS {
        let part = f64::from(tick) / f64::from(TICKS);
        let (x, y) = at((part * span.rps, part * span.ms), span);
        let (rps, ms) = (number(part * span.rps), number(part * span.ms));
        let (below, before) = (foot + 14.0, LEFT - 5.0);
        put(
            text,
            format_args!("<text x=\"{x:.1}\" y=\"{below}\" text-anchor=\"middle\">{rps}</text>\n"),
        );
        put(
            text,
            format_args!(
                "<text x=\"{before}\" y=\"{y:.1}\" dy=\"4\" text-anchor=\"end\">{ms}</text>\n"
            ),
        );
    }
    let (middle, lowest) = ((LEFT + right) / 2.0, PANEL_HEIGHT - 6.0);
    put(
        text,
        format_args!(
            "<text x=\"{middle}\" y=\"{lowest}\" text-anchor=\"middle\">requests/s</text>\n"
        ),
    );
    put(
        text,
        format_args!(
            "<text transform=\"translate(12 {}) rotate(-90)\" text-anchor=\"middle\">ms</text>\n</g>\n",
            (TOP + foot) / 2.0
        ),
    );
}

/// Where a point lies in its panel; points outside the span lie on its edge.
fn at((rps, ms): (f64, f64), span: Span) -> (f64, f64) {
    let part = |x: f64| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
    let x = LEFT + (PANEL_WIDTH - LEFT - RIGHT) * part(rps / span.rps);
    let y = PANEL_HEIGHT - BOTTOM - (PANEL_HEIGHT - TOP - BOTTOM) * part(ms / span.ms);
    (x, y)
}

fn escape(text: &str) -> String {
    let text = printable(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

fn put(text: &mut String, args: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(args);
}

#[cfg(test)]
mod tests {
    use super::super::chart::tests::hyperbola;
    use super::*;

    #[test]
    fn a_document_holds_a_panel_per_chart() {
        let mut odd = hyperbola();
        odd.title = "<s&2>".to_owned();
        odd.now = None;
        let text = document(&[hyperbola(), odd.clone(), odd.clone(), odd]);
        assert!(text.starts_with("<svg xmlns") && text.ends_with("</svg>\n"));
        assert!(text.contains("width=\"960\" height=\"460\""));
        assert_eq!(text.matches("<polyline").count(), 4);
        assert_eq!(text.matches("<title>now").count(), 1);
        assert_eq!(text.matches(">&lt;s&amp;2&gt;<").count(), 3);
        assert_eq!(text.matches("<g").count(), text.matches("</g>").count());
    }

    #[test]
    fn an_empty_document_is_still_one() {
        assert!(document(&[]).contains("height=\"230\""));
    }

    #[test]
    fn points_are_placed_by_the_span() {
        let span = Span { rps: 100.0, ms: 50.0 };
        assert_eq!(at((0.0, 0.0), span), (LEFT, PANEL_HEIGHT - BOTTOM));
        assert_eq!(at((100.0, 50.0), span), (PANEL_WIDTH - RIGHT, TOP));
        assert_eq!(
            at((f64::INFINITY, f64::NAN), span),
            (PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM)
        );
    }
}
