//! What was found, in a form for people and one for programs.

use std::io::{self, Write};
use std::ops::Range;

use plimsoll_terminal::{Screen, Tone, json, printable};
use serde::Serialize;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Plimsoll works, but not as well as it could.
    Warning,
    /// Plimsoll cannot help until this is changed.
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about: a service, `service/backend`, or a part of the configuration.
    pub about: String,
    /// What is so.
    pub message: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(about: impl Into<String>, message: impl Into<String>) -> Self {
        let (about, message) = (about.into(), message.into());
        Finding { severity: Severity::Ok, about, message, advice: None }
    }

    /// Good to know.
    pub fn note(about: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { severity: Severity::Note, ..Finding::ok(about, message) }
    }

    /// Not as good as it could be, and what would be better.
    pub fn warning(
        about: impl Into<String>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into()).filter(|advice| !advice.is_empty());
        Finding { severity: Severity::Warning, advice, ..Finding::ok(about, message) }
    }

    /// Wrong, and what to do.
    pub fn error(
        about: impl Into<String>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Finding { severity: Severity::Error, ..Finding::warning(about, message, advice) }
    }
}

/// All that was found, in the order of looking.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    findings: &'a [Finding],
}

impl Findings {
    /// One more.
    pub fn add(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// All of those too.
    pub fn append(&mut self, other: Findings) {
        self.0.extend(other.0);
    }

    /// Whether something is wrong.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// In the order of looking.
    pub fn all(&self) -> &[Finding] {
        &self.0
    }

    /// Says of some where they were found, but for those that say it.
    pub fn name_place(&mut self, some: Range<usize>, place: &str) {
        for finding in &mut self.0[some] {
            if !finding.message.contains(place) {
                finding.message = format!("{place}: {}", finding.message);
            }
        }
    }

    /// `{"ok", "findings": [{"severity", "about", "message", "advice"}]}`
    pub fn to_json(&self, out: &mut dyn Write) -> io::Result<()> {
        json(out, &Answer { ok: !self.has_errors(), findings: &self.0 })
    }

    /// A line per finding, and how many there are of each kind.
    pub fn to_lines(&self, screen: &Screen, out: &mut dyn Write) -> io::Result<()> {
        for finding in &self.0 {
            let (word, tone) = match finding.severity {
                Severity::Ok => ("ok", Tone::Good),
                Severity::Note => ("note", Tone::Quiet),
                Severity::Warning => ("warning", Tone::Warn),
                Severity::Error => ("error", Tone::Bad),
            };
            let word = screen.paint(tone, &format!("{word:<8}"));
            let message = printable(&finding.message);
            match &finding.advice {
                Some(advice) => {
                    writeln!(out, "{word}{}: {message}; {}", finding.about, printable(advice))?;
                }
                None => writeln!(out, "{word}{}: {message}", finding.about)?,
            }
        }
        let count = |severity| self.0.iter().filter(|f| f.severity == severity).count();
        let of = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        writeln!(
            out,
            "{}, {}",
            of(count(Severity::Error), "error"),
            of(count(Severity::Warning), "warning")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_and_errors_decide() {
        let mut findings = Findings::default();
        findings.add(Finding::ok("config", "f.yaml is valid"));
        findings.add(Finding::warning("shop", "slow", "be quick"));
        assert!(!findings.has_errors());
        findings.add(Finding::error("shop/s1", "gone\x1b[2J", ""));
        assert!(findings.has_errors());
        let mut out = Vec::new();
        findings.to_lines(&Screen::PLAIN, &mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "ok      config: f.yaml is valid\nwarning shop: slow; be quick\nerror   shop/s1: \
             gone\\u{1b}[2J\n1 error, 1 warning\n"
        );
        let mut out = Vec::new();
        findings.to_json(&mut out).expect("written");
        let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            (&json["ok"], &json["findings"][2]["severity"]),
            (&false.into(), &"error".into())
        );
        assert_eq!(json["findings"][2]["advice"], serde_json::Value::Null);
    }

    #[test]
    fn what_one_of_several_balancers_told_names_it() {
        let mut findings = Findings::default();
        findings.add(Finding::ok("shop", "from before"));
        findings.add(Finding::note("shop", "`balance source` takes no weights"));
        findings.add(Finding::error("shop", "HAProxy socket /run/a.sock: no such socket", ""));
        findings.name_place(1..3, "/run/a.sock");
        let messages: Vec<&str> = findings.all().iter().map(|f| f.message.as_str()).collect();
        let expected = [
            "from before",
            "/run/a.sock: `balance source` takes no weights",
            "HAProxy socket /run/a.sock: no such socket",
        ];
        assert_eq!(messages, expected);
    }
}
