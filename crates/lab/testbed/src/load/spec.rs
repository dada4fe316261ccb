//! What a load is.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::arrivals::Pattern;
use crate::Service;

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At times of their own, whatever becomes of earlier ones.
    Open {
        /// How the gaps are spread.
        pattern: Pattern,
        /// Requests per second; 0 pauses.
        rate_rps: f64,
    },
    /// Each of a fixed number of clients sends its next request when the last one has ended.
    Closed,
}

/// A load to be put on a URL.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// Where to.
    pub target: Target,
    /// `GET` and so on.
    pub method: String,
    /// Beside `Host` and `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// Sent with every request; empty for none.
    pub body: Vec<u8>,
    /// When requests start.
    pub arrivals: Arrivals,
    /// Open loop: the most connections; arrivals wait for a free one, and the wait counts as latency.
    /// Closed loop: the number of clients.
    pub concurrency: Option<usize>,
    /// Load before the measured part, left out of every number.
    pub warmup: Duration,
    /// The measured part.
    pub duration: Duration,
    /// From the intended start; a request without a complete answer by then is an error.
    pub timeout: Duration,
    /// Open loop: an arrival that finds this many unanswered requests is an error (`overflow`).
    pub max_in_flight: usize,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The response header that names the backend.
    pub by_header: String,
    /// Whether to keep a [`super::Record`] of every request.
    pub keep_records: bool,
    /// How much work each request asks its server for, as `work_us=` in the query; none for requests
    /// that are all alike. The same seed draws the same work for the same arrival.
    pub work: Option<Service>,
    /// What requests ask for instead of the target's path, each as likely as the others; empty for requests
    /// that all ask for the target. The same seed draws the same for the same arrival.
    pub mix: Vec<Asked>,
}

/// One kind of request among several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// With its query, from `/` on.
    pub path: String,
    /// Sent with it; empty for none.
    pub body: Vec<u8>,
}

impl LoadSpec {
    /// Poisson arrivals of `GET` requests, time-out 30 s, at most 10,000 in flight, split by
    /// `x-backend`.
    pub fn poisson(target: Target, rate_rps: f64, duration: Duration) -> Self {
        LoadSpec {
            target,
            method: "GET".into(),
            headers: Vec::new(),
            body: Vec::new(),
            arrivals: Arrivals::Open { pattern: Pattern::Poisson, rate_rps },
            concurrency: None,
            warmup: Duration::ZERO,
            duration,
            timeout: Duration::from_secs(30),
            max_in_flight: 10_000,
            seed: 1,
            by_header: "x-backend".into(),
            keep_records: false,
            work: None,
            mix: Vec::new(),
        }
    }

    /// Everything that makes the load impossible; empty when it is possible.
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        let token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_graphic() && !b"\":;,()<>@".contains(&b))
        };
        if !token(&self.method) {
            found.push(format!("method: expected a word such as GET, found `{}`", self.method));
        }
        for (name, value) in &self.headers {
            if !token(name) || value.bytes().any(|b| b.is_ascii_control()) {
                found.push(format!("header: expected NAME: VALUE, found `{name}: {value}`"));
            }
        }
        for asked in &self.mix {
            let visible = asked.path.bytes().all(|b| b.is_ascii_graphic());
            if !asked.path.starts_with('/') || !visible {
                found.push(format!("mix: expected a path such as /a, found `{}`", asked.path));
            }
        }
        if !self.mix.is_empty() && self.work.is_some() {
            found.push("mix and work: expected one of them".into());
        }
        if !token(&self.by_header) {
            found.push(format!("by_header: expected a header's name, found `{}`", self.by_header));
        }
        if let Arrivals::Open { rate_rps, .. } = self.arrivals
            && !valid_rate(rate_rps)
        {
            found.push(format!("rate: expected 0 to {MOST_RATE} per second, found {rate_rps}"));
        }
        if self.arrivals == Arrivals::Closed && self.concurrency.is_none() {
            found.push("concurrency: a closed loop needs the number of its clients".into());
        }
        if self.concurrency == Some(0) {
            found.push("concurrency: expected at least 1".into());
        }
        if self.duration.is_zero() {
            found.push("duration: expected more than zero".into());
        }
        if self.timeout.is_zero() {
            found.push("timeout: expected more than zero".into());
        }
        found
    }

    /// The bytes of a request, which asks for so much work where work varies.
    pub(super) fn request_bytes(&self, work_us: Option<u64>) -> Vec<u8> {
        self.bytes_for(&self.target.path, &self.body, work_us)
    }

    /// The bytes of a request for this.
    pub(super) fn bytes_of(&self, asked: &Asked) -> Vec<u8> {
        self.bytes_for(&asked.path, &asked.body, None)
    }

    fn bytes_for(&self, path: &str, body: &[u8], work_us: Option<u64>) -> Vec<u8> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let query = work_us.map(|us| format!("{sign}work_us={us}")).unwrap_or_default();
        let mut head = format!(
            "{} {path}{query} HTTP/1.1\r\nHost: {}\r\n",
            self.method, self.target.authority
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let bodiless =
            body.is_empty() && ["GET", "HEAD", "OPTIONS", "DELETE"].contains(&&*self.method);
        if !bodiless {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }
}

/// Far above what one thread sends; a bound against slips of the pen.
const MOST_RATE: f64 = 1e6;

pub(super) fn valid_rate(rate_rps: f64) -> bool {
    (0.0..=MOST_RATE).contains(&rate_rps)
}

/// A resolved `http://` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    authority: String,
    path: String,
    pub(super) address: SocketAddr,
}

impl Target {
    /// Reads a URL and resolves its host; of several addresses the first IPv4 one is taken.
    ///
    /// # Errors
    /// A sentence that says what was expected, or why the host cannot be found.
    pub fn resolve(url: &str) -> Result<Self, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(match url.starts_with("https://") {
                true => format!("https is not supported by the load generator: `{url}`"),
                false => {
                    format!("expected a URL such as http://127.0.0.1:8080/work, found `{url}`")
                }
            });
        };
        let bad = |what: &str| format!("{what} in URL `{url}`");
        let rest = rest.split('#').next().unwrap_or_default();
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        if authority.is_empty() || authority.contains('@') {
            return Err(bad("expected HOST or HOST:PORT"));
        }
        if url.bytes().any(|b| !b.is_ascii_graphic()) {
            return Err(bad("spaces and non-ASCII characters must be percent-encoded"));
        }
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}") };
        let has_port = authority.rfind(':').is_some_and(|colon| !authority[colon..].contains(']'));
        let with_port = if has_port { authority.into() } else { format!("{authority}:80") };
        let found: Vec<SocketAddr> = with_port
            .to_socket_addrs()
            .map_err(|e| format!("{}: {e}", bad("cannot resolve the host")))?
            .collect();
        let address = found.iter().find(|a| a.is_ipv4()).or(found.first());
        let address = *address.ok_or_else(|| bad("the host has no address"))?;
        Ok(Target { authority: authority.into(), path, address })
    }

    /// Where connections go.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_whole() {
        let parts = |url: &str| {
            let t = Target::resolve(url).unwrap();
            (t.authority, t.path, t.address.to_string())
        };
        let own = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(parts("http://127.0.0.1:81/a?b#c"), own("127.0.0.1:81", "/a?b", "127.0.0.1:81"));
        assert_eq!(parts("http://127.0.0.1"), own("127.0.0.1", "/", "127.0.0.1:80"));
        assert_eq!(parts("http://127.0.0.1?x"), own("127.0.0.1", "/?x", "127.0.0.1:80"));
        assert_eq!(parts("http://[::1]:9/"), own("[::1]:9", "/", "[::1]:9"));
        assert_eq!(parts("http://[::1]/"), own("[::1]", "/", "[::1]:80"));
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "https://127.0.0.1/",
            "127.0.0.1:80",
            "http://",
            "http:///x",
            "http://u@127.0.0.1/",
            "http://127.0.0.1:port/",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/\r\nX: y",
        ] {
            assert!(Target::resolve(url).is_err(), "{url}");
        }
    }

    #[test]
    fn everything_impossible_is_named() {
        let target = Target::resolve("http://127.0.0.1:1/").unwrap();
        let mut spec = LoadSpec::poisson(target, 10.0, Duration::from_secs(1));
        assert_eq!(spec.problems(), Vec::<String>::new());
        spec.method = "G ET".into();
        spec.headers.push(("x".into(), "a\r\nb: c".into()));
        spec.arrivals = Arrivals::Closed;
        spec.duration = Duration::ZERO;
        spec.timeout = Duration::ZERO;
        assert_eq!(spec.problems().len(), 5, "{:?}", spec.problems());
        spec.arrivals = Arrivals::Open { pattern: Pattern::Constant, rate_rps: f64::NAN };
        assert!(spec.problems().iter().any(|p| p.starts_with("rate:")));
    }

    #[test]
    fn a_request_carries_a_length_when_it_may_have_a_body() {
        let target = Target::resolve("http://127.0.0.1:1/x").unwrap();
        let mut spec = LoadSpec::poisson(target, 10.0, Duration::from_secs(1));
        spec.headers.push(("A".into(), "b".into()));
        let text = String::from_utf8(spec.request_bytes(None)).unwrap();
        assert_eq!(text, "GET /x HTTP/1.1\r\nHost: 127.0.0.1:1\r\nA: b\r\n\r\n");
        spec.method = "POST".into();
        spec.body = b"hi".to_vec();
        let text = String::from_utf8(spec.request_bytes(None)).unwrap();
        assert!(text.ends_with("Content-Length: 2\r\n\r\nhi"), "{text}");
        let text = String::from_utf8(spec.request_bytes(Some(5500))).unwrap();
        assert!(text.starts_with("POST /x?work_us=5500 HTTP/1.1\r\n"), "{text}");
    }
}
