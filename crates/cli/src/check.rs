//! `plimsoll check`: says everything that is wrong with a configuration, and touches nothing else.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_config::{ConfigError, Document};
use plimsoll_terminal::{Format, exit, printable};
use serde::Serialize;

use crate::config::{self, Sections};

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    errors: &'a [ConfigError],
}

/// Checks the configuration in `file` and returns the exit status. A table is one line on `out` when all is well, else one
/// line on `err` for each problem; JSON is one object on `out`, whatever the outcome.
///
/// # Errors
/// When the answer cannot be written.
pub fn check(
    file: &Path,
    format: Format,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let outcome = Document::load(file).and_then(|document| config::all(&document));
    let errors = outcome.as_ref().err().map_or(&[][..], Vec::as_slice);
    match format {
        Format::Json => {
            let answer = Answer { ok: outcome.is_ok(), errors };
            writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
        }
        Format::Table => match &outcome {
            Ok(sections) => writeln!(out, "{}: ok ({})", file.display(), summary(sections))?,
            Err(errors) => errors.iter().for_each(|error| {
                // The exit status says so, too, where nobody can read this.
                let _ = writeln!(err, "{}", printable(&error.to_string()));
            }),
        },
    }
    Ok(if outcome.is_ok() { 0 } else { exit::MALFORMED })
}

/// A number of things, in words.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn summary(sections: &Sections) -> String {
    let mut parts = Vec::new();
    if let Some(daemon) = &sections.daemon {
        let backends = daemon.services.iter().map(|service| service.backends.len()).sum();
        let (all, auto) =
            (daemon.services.len(), daemon.services.iter().filter(|service| service.auto).count());
        parts.push(count(all, "service"));
        // Nobody is asked here.
        parts.push(match auto {
            0 => count(backends, "backend"),
            auto if auto == all => "with the backends that the balancer has".to_owned(),
            auto => {
                let listed = count(backends, "backend");
                format!("{listed} and, for {auto} of the services, those that the balancer has")
            }
        });
    }
    if let Some(l4) = &sections.l4 {
        let servers = l4.balancer.vips.iter().map(|vip| vip.backends.len()).sum();
        parts.push(format!("layer 4: {}", count(l4.balancer.vips.len(), "service")));
        parts.push(count(servers, "server"));
    }
    if let Some(proxy) = &sections.proxy {
        parts.push(crate::proxy::summary(proxy));
    }
    if let Some(edge) = &sections.edge {
        parts.push(crate::edge::summary(edge));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "services:
  - name: shop
    backends: [{ name: s1, address: \"127.0.0.1:9001\" }]
    probe: { path: /work }
    sink: { haproxy: { socket: /run/h.sock, backend: shop } }
";

    fn checked(name: &str, text: Option<&str>, format: Format) -> (u8, String, String) {
        let dir =
            std::env::temp_dir().join(format!("plimsoll-check-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("f.yaml");
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = check(&file, format, &mut out, &mut err).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(dir.to_str().unwrap(), "D");
        (status, text(out), text(err))
    }

    #[test]
    fn a_good_file_is_summed_up() {
        let answer = checked("good", Some(GOOD), Format::Table);
        assert_eq!(answer, (0, "D/f.yaml: ok (1 service, 1 backend)\n".into(), String::new()));
    }

    const LAYER_4: &str = "l4:
  interfaces: [ { name: eth0 } ]
  vips: [ { name: web, address: \"10.0.9.9:80\", backends: [ { name: s1, address: \"10.0.2.2\" } ] } ]
";

    #[test]
    fn one_file_may_hold_the_sections_of_several_commands() {
        let summed_up = |text: &str| {
            let (status, out, err) = checked("sections", Some(text), Format::Table);
            assert_eq!((status, err.as_str()), (0, ""), "{text}");
            out
        };
        assert_eq!(summed_up(LAYER_4), "D/f.yaml: ok (layer 4: 1 service, 1 server)\n");
        let proxy = "proxy:
  egress: [ { name: shop, listen: \"127.0.0.1:8080\" } ]
  pools: [ { name: shop, backends: [ { name: b1, address: \"127.0.0.1:9001\" } ] } ]
";
        let expected =
            "D/f.yaml: ok (1 service, 1 backend, proxy: 0 ingress, 1 egress, 1 pool, 1 backend)\n";
        assert_eq!(summed_up(&format!("{GOOD}{proxy}")), expected);
        let both = format!("{GOOD}{LAYER_4}");
        let expected = "D/f.yaml: ok (1 service, 1 backend, layer 4: 1 service, 1 server)\n";
        assert_eq!(summed_up(&both), expected);
        let bad = both.replace("9001", "0").replace("10.0.9.9:80", "10.0.9.9")
            + &proxy.replace("8080", "0")
            + "proxies: 1\n";
        let (status, _, err) = checked("wrong-sections", Some(&bad), Format::Table);
        let keys: Vec<&str> = err.lines().filter_map(|line| line.split(": ").nth(1)).collect();
        assert_eq!(status, 2);
        assert_eq!(
            keys,
            [
                "services[0].backends[0].address",
                "l4.vips[0].address",
                "proxy.egress[0].listen",
                "proxies",
            ]
        );
    }

    #[test]
    fn servers_that_are_left_to_the_balancer_are_not_counted() {
        let auto = GOOD.replace("[{ name: s1, address: \"127.0.0.1:9001\" }]", "auto");
        let (status, out, _) = checked("auto", Some(&auto), Format::Table);
        let expected = "D/f.yaml: ok (1 service, with the backends that the balancer has)\n";
        assert_eq!((status, out.as_str()), (0, expected));
        let listed =
            GOOD.replace("name: shop", "name: old").replace("backend: shop", "backend: old");
        let both = format!("{auto}{}", listed.replace("services:\n", ""));
        let (status, out, _) = checked("both", Some(&both), Format::Table);
        let expected = "D/f.yaml: ok (2 services, 1 backend and, for 1 of the services, those that the balancer has)\n";
        assert_eq!((status, out.as_str()), (0, expected));
    }

    #[test]
    fn every_problem_gets_its_line_and_nothing_else_is_said() {
        let bad = GOOD.replace("9001", "0").replace("path: /work", "path: work, time: 1s");
        let (status, out, err) = checked("bad", Some(&bad), Format::Table);
        assert_eq!((status, out.as_str()), (2, ""));
        let starts = [
            "D/f.yaml:3:37: services[0].backends[0].address: expected a port",
            "D/f.yaml:4:20: services[0].probe.path: expected a path",
            "D/f.yaml:4:26: services[0].probe.time: unknown key; did you mean",
        ];
        let lines: Vec<&str> = err.lines().collect();
        assert_eq!(lines.len(), starts.len(), "{err}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn what_only_the_parts_find_has_its_place_too() {
        let long = GOOD.replace("/work", &format!("/{}", "x".repeat(9_000)));
        let (status, _, err) = checked("long", Some(&long), Format::Table);
        let start = "D/f.yaml:4:12: services[0].probe: the request's head is 9";
        assert!(status == 2 && err.starts_with(start) && err.lines().count() == 1, "{err}");
    }

    #[test]
    fn a_missing_file_is_a_problem_like_any_other() {
        let (status, out, err) = checked("missing", None, Format::Table);
        let expected = "D/f.yaml:1:1: config: cannot be read: No such file or directory\n";
        assert_eq!((status, out.as_str(), err.as_str()), (2, "", expected));
    }

    #[test]
    fn programs_get_one_object() {
        let (status, out, err) = checked("json-good", Some(GOOD), Format::Json);
        let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((status, err.as_str()), (0, ""));
        assert_eq!(answer, serde_json::json!({ "ok": true, "errors": [] }));

        let (status, out, err) = checked("json-bad", Some("services: []\n"), Format::Json);
        let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((status, err.as_str(), &answer["ok"]), (2, "", &false.into()));
        let error = &answer["errors"][0];
        assert_eq!((&error["line"], &error["column"]), (&1.into(), &11.into()));
        assert_eq!((&error["key"], &error["file"]), (&"services".into(), &"D/f.yaml".into()));
    }
}
