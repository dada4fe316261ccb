//! The Prometheus text format 0.0.4.

use std::fmt::Write;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The media type of a page.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric does over time.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// `_bucket`, `_sum` and `_count`.
    Histogram,
    /// `_sum` and `_count`.
    Summary,
}

/// Labels of one sample: names are ours, values anybody's.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page of metrics under construction; all samples of one family stand together.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    family: &'static str,
}

/// A yes or no as a value.
pub fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], self.text)
            .into_response()
    }
}

impl Page {
    /// A page that begins with what every daemon of ours tells of itself.
    pub fn of_daemon(version: &str, started_unix_ms: i64, lost_log_lines: u64) -> Self {
        let mut page = Page::default();
        page.family("plimsoll_build_info", Kind::Gauge, "Always 1; the version is in the label.");
        page.sample(&[("version", version)], 1.0);
        let help = "When the daemon started, Unix time.";
        page.family("plimsoll_start_time_seconds", Kind::Gauge, help);
        page.sample(&[], started_unix_ms as f64 / 1e3);
        let help = "Log lines that could not be written, or waited in vain to be.";
        page.family("plimsoll_log_lines_lost_total", Kind::Counter, help);
        page.sample(&[], lost_log_lines as f64);
        page
    }

    /// Begins the family of this name; the samples that follow are its.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        };
        self.family = name;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: Labels, value: f64) {
        self.suffixed("", labels, value);
    }

    /// A sample of the family under `name + suffix`.
    pub fn suffixed(&mut self, suffix: &str, labels: Labels, value: f64) {
        let family = self.family;
        self.put(format_args!("{family}{suffix}"));
        for (i, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if i == 0 { '{' } else { ',' };
            self.put(format_args!("{before}{name}=\"{value}\""));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{after} {}\n", number(value)));
    }

    /// The page as it stands.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn put(&mut self, args: std::fmt::Arguments) {
        // Writing to a String cannot fail.
        let _ = self.text.write_fmt(args);
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_the_format_wants_it() {
        let mut page = Page::default();
        page.family("a_total", Kind::Counter, "Back\\slash and\nline.");
        page.sample(&[], 3.0);
        page.family("b_seconds", Kind::Summary, "B.");
        page.suffixed("_sum", &[("service", "a\"b\\c\nd"), ("x", "é")], 0.25);
        page.suffixed("_count", &[("le", &number(f64::INFINITY))], f64::NAN);
        let expected = [
            r"# HELP a_total Back\\slash and\nline.",
            "# TYPE a_total counter",
            "a_total 3",
            "# HELP b_seconds B.",
            "# TYPE b_seconds summary",
            r#"b_seconds_sum{service="a\"b\\c\nd",x="é"} 0.25"#,
            r#"b_seconds_count{le="+Inf"} NaN"#,
            "",
        ];
        assert_eq!(page.text(), expected.join("\n"));
    }
}
