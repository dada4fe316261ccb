//! The layer-4 part: of a configuration with an `l4` section, or of the machine alone.

use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_l4::L4Config;
use plimsoll_l4::doctor::{Finding, Level, examine};
use plimsoll_terminal::table::{Cell, Table, left};
use plimsoll_terminal::{Format, Screen, Tone, exit, json, printable};
use serde::Serialize;

use super::finding::{self, Findings};

/// What was found about the `l4` section of a file with sections of other commands, in their form.
pub fn findings(config: &L4Config) -> Findings {
    let mut findings = Findings::default();
    for Finding { check, about, level, found, why, advice } in examine(Some(config)) {
        let about = format!("l4 {check}, {about}");
        findings.add(match level {
            Level::Ok => finding::Finding::ok(about, found),
            Level::Warn => finding::Finding::warning(about, format!("{found}: {why}"), advice),
            Level::Fail => finding::Finding::error(about, format!("{found}: {why}"), advice),
        });
    }
    findings
}

/// Looks, and exits 0 when nothing fails, 1 when something does.
pub fn run(config: Option<&L4Config>, format: Format) -> ExitCode {
    let findings = examine(config);
    let mut out = io::stdout().lock();
    let shown = match format {
        Format::Json => to_json(&findings, &mut out),
        Format::Table => out.write_all(to_table(&findings, &Screen::stdout()).as_bytes()),
    };
    match shown.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            plimsoll_terminal::fail(&format!("cannot write the answer: {error}"))
        }
        _ if fails(&findings) => ExitCode::from(exit::FAILED),
        _ => ExitCode::SUCCESS,
    }
}

fn fails(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.level == Level::Fail)
}

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    findings: &'a [Finding],
}

/// `{"ok", "findings": [{"check", "about", "level", "found", "why", "advice"}]}`
fn to_json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    json(out, &Answer { ok: !fails(findings), findings })
}

/// A line for each check; below, why what is not well matters, and what to do.
fn to_table(findings: &[Finding], screen: &Screen) -> String {
    let mut table = Table::new([left("level"), left("check"), left("about"), left("found")]);
    for finding in findings {
        let (word, tone) = worded(finding.level);
        table.row([
            Cell::toned(word, tone),
            finding.check.into(),
            finding.about.as_str().into(),
            finding.found.as_str().into(),
        ]);
    }
    let mut text = table.render(screen);
    for finding in findings.iter().filter(|finding| finding.level != Level::Ok) {
        let (word, tone) = worded(finding.level);
        let Finding { check, about, why, advice, .. } = finding;
        text += &format!("\n{} {check}, {}: {why}\n", screen.paint(tone, word), printable(about));
        if !advice.is_empty() {
            text += &format!("     {}\n", printable(advice));
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    text += &format!("\n{} fail, {} warn\n", count(Level::Fail), count(Level::Warn));
    text
}

fn worded(level: Level) -> (&'static str, Tone) {
    match level {
        Level::Ok => ("ok", Tone::Good),
        Level::Warn => ("warn", Tone::Warn),
        Level::Fail => ("fail", Tone::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, found: &str) -> Finding {
        Finding {
            check: "mtu",
            about: "eth0".to_owned(),
            level,
            found: found.to_owned(),
            why: "it matters",
            advice: "do this".to_owned(),
        }
    }

    #[test]
    fn every_check_is_a_line_and_what_is_not_well_is_explained() {
        let findings = [finding(Level::Ok, "1500"), finding(Level::Fail, "9000\x1b[2J")];
        let text = to_table(&findings, &Screen::PLAIN);
        assert_eq!(
            text,
            "level  check  about  found\nok     mtu    eth0   1500\nfail   mtu    eth0   \
             9000\\u{1b}[2J\n\nfail mtu, eth0: it matters\n     do this\n\n1 fail, 0 warn\n"
        );
        let mut out = Vec::new();
        to_json(&findings, &mut out).expect("written");
        let answer: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            (&answer["ok"], &answer["findings"][1]["level"]),
            (&false.into(), &"fail".into())
        );
        assert!(fails(&findings) && !fails(&findings[..1]));
    }
}
