//! Where the daemon answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ureq::http::Uri;

use crate::config;

/// Where a daemon answers whose configuration does not say.
const DEFAULT: &str = "http://127.0.0.1:7400";

/// The daemon's URL, without a slash at its end: the one given, else that of the configuration given,
/// else the default.
///
/// # Errors
/// A URL that cannot be one, or every problem of the configuration, a line each; complete as they are.
pub fn resolve_api(api: Option<&str>, config: Option<&Path>) -> Result<String, String> {
    match (api, config) {
        (Some(url), _) => from_url(url),
        (None, Some(path)) => from_config(path),
        (None, None) => Ok(DEFAULT.to_owned()),
    }
}

fn from_url(url: &str) -> Result<String, String> {
    let wrong =
        || format!("plimsoll: --api: expected a URL such as http://127.0.0.1:7400, found {url:?}");
    let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = full.parse().map_err(|_| wrong())?;
    let plain = uri.scheme_str() == Some("http") && uri.query().is_none();
    let host = uri.authority().filter(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    match host {
        Some(host) if plain => Ok(format!("http://{host}{}", uri.path().trim_end_matches('/'))),
        _ => Err(wrong()),
    }
}

fn from_config(path: &Path) -> Result<String, String> {
    match config::load(path) {
        Ok(config) => Ok(format!("http://{}", reachable(config.api.listen))),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(lines.join("\n"))
        }
    }
}

/// An address to ask for a daemon that listens here: one that listens everywhere also does on
/// loopback.
pub fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_used_as_given() {
        for (given, used) in [
            ("http://127.0.0.1:7400", "http://127.0.0.1:7400"),
            ("http://127.0.0.1:7400/", "http://127.0.0.1:7400"),
            ("localhost:1", "http://localhost:1"),
            ("http://[::1]:7400/lb/", "http://[::1]:7400/lb"),
        ] {
            assert_eq!(resolve_api(Some(given), None).as_deref(), Ok(used));
        }
        for wrong in
            ["", "https://127.0.0.1:7400", "http://", "a b", "http://u:p@h", "http://h/?x=1"]
        {
            let error = format!(
                "plimsoll: --api: expected a URL such as http://127.0.0.1:7400, found {wrong:?}"
            );
            assert_eq!(resolve_api(Some(wrong), None), Err(error));
        }
    }

    #[test]
    fn without_anything_it_is_the_default() {
        assert_eq!(resolve_api(None, None).as_deref(), Ok("http://127.0.0.1:7400"));
    }

    #[test]
    fn a_configuration_tells_where_it_listens() {
        let dir = std::env::temp_dir().join(format!("plimsoll-resolve-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let file = dir.join("f.yaml");
        let service = "services:
  - name: shop
    backends: [{ name: s1, address: \"127.0.0.1:9001\" }]
    probe: { path: /work }
    sink: { haproxy: { socket: /run/h.sock, backend: shop } }
";
        let resolve = |text: &str| {
            std::fs::write(&file, text).expect("written");
            resolve_api(None, Some(&file))
        };
        let custom = resolve(&format!("{service}api: {{ listen: \"127.0.0.1:7999\" }}\n"));
        let default = resolve(service);
        let broken = resolve("services: []\nextra: 1\n");
        let both = resolve_api(Some("localhost:1"), Some(&dir.join("missing")));
        std::fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(custom.as_deref(), Ok("http://127.0.0.1:7999"));
        assert_eq!(default.as_deref(), Ok(DEFAULT));
        let problems = broken.expect_err("two problems");
        assert_eq!(problems.lines().count(), 2, "{problems}");
        assert!(problems.lines().all(|l| l.starts_with(&format!("{}:", file.display()))));
        assert_eq!(both.as_deref(), Ok("http://localhost:1"));
    }

    #[test]
    fn a_daemon_that_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:7400", "127.0.0.1:7400"),
            ("[::]:7400", "[::1]:7400"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ] {
            assert_eq!(reachable(listen.parse().expect("an address")).to_string(), asked);
        }
    }
}
