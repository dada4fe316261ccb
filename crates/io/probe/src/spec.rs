use std::path::PathBuf;
use std::time::Duration;

use crate::StatusSet;

/// How a probe travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP/1.1 in the clear.
    #[default]
    Http,
    /// HTTP/1.1 over TLS 1.2 or 1.3.
    Https,
}

/// What becomes of a connection after a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Kept for the next probe: latency is that of a request alone.
    #[default]
    Keep,
    /// Every probe opens its own and closes it: latency includes connecting and the TLS handshake.
    New,
}

/// How a backend's certificate is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSpec {
    /// A PEM file of the authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The name to ask for and to check, where it differs from the `Host` header and the address.
    pub server_name: Option<String>,
    /// Take any certificate. For test beds: it shows that a server answers, not which.
    pub insecure: bool,
}

/// What is asked of a backend, and which answer is a success. Plain data: [`Probe::new`] checks it.
///
/// [`Probe::new`]: crate::Probe::new
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// HTTP or HTTPS.
    pub scheme: Scheme,
    /// A request method other than `CONNECT`. Default `GET`.
    pub method: String,
    /// The request target, beginning with `/`. Default `/`.
    pub path: String,
    /// The `Host` header; the backend's address when absent.
    pub host: Option<String>,
    /// More header fields, in order. The prober writes `Host`, `Connection` and the fields of framing
    /// itself, and `User-Agent` and `Accept` unless they are given here.
    pub headers: Vec<(String, String)>,
    /// The request's body.
    pub body: Option<Vec<u8>>,
    /// The status codes of a success. Default 200…399.
    pub expect_status: StatusSet,
    /// Bytes that the body of a success must contain.
    pub expect_body: Option<Vec<u8>>,
    /// For everything together: resolving, connecting, TLS, request and answer. Default 2 s.
    pub timeout: Duration,
    /// Whether connections are kept.
    pub connection: Connection,
    /// The longest body that is read, bytes; a longer one is a failure. Default 64 KiB.
    pub max_body: usize,
    /// Only with [`Scheme::Https`]; the system's authorities judge when absent.
    pub tls: Option<TlsSpec>,
}

impl Default for ProbeSpec {
    fn default() -> Self {
        ProbeSpec {
            scheme: Scheme::Http,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            host: None,
            headers: Vec::new(),
            body: None,
            expect_status: StatusSet::default(),
            expect_body: None,
            timeout: Duration::from_secs(2),
            connection: Connection::Keep,
            max_body: 64 * 1024,
            tls: None,
        }
    }
}

/// Why a [`ProbeSpec`] cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Not a token of RFC 9110 §5.6.2, or `CONNECT`, which makes a tunnel and not an answer.
    #[error("`{0}` is not a method that can be probed with")]
    Method(String),
    /// Does not begin with `/`, or holds a space, a control character, `#` or non-ASCII.
    #[error("`{0}` is not a path: it begins with `/` and everything unusual in it is %-encoded")]
    Path(String),
    /// Not a host with an optional port.
    #[error("`{0}` is not a value for the Host header")]
    Host(String),
    /// Not a token of RFC 9110 §5.6.2.
    #[error("`{0}` is not a header name")]
    HeaderName(String),
    /// One that the prober writes itself, because a wrong one would break the framing.
    #[error("the header `{0}` is written by the prober itself")]
    HeaderReserved(String),
    /// Holds a line break or another control character, or begins or ends with a space.
    #[error("the value of header `{0}` holds a control character or a space at an end")]
    HeaderValue(String),
    /// The request's head is longer than servers take.
    #[error("the request's head is {0} bytes long; servers take 8 KiB or less")]
    HeadTooLong(usize),
    /// The request's body is longer than a probe may be.
    #[error("the request's body is {0} bytes long; a probe may send 1 MiB")]
    BodyTooLong(usize),
    /// An expected body that can never come: it is empty, longer than `max_body`, or the method is
    /// `HEAD`.
    #[error("the expected body can never come: {0}")]
    ExpectBody(&'static str),
    /// Zero, or more than an hour.
    #[error("the time-out must lie within 1 ms and 1 h")]
    Timeout,
    /// More than 64 MiB.
    #[error("the longest body to read must not be over 64 MiB")]
    MaxBody,
    /// TLS settings for plain HTTP.
    #[error("TLS settings need the scheme https")]
    TlsWithoutHttps,
    /// A name that no certificate can carry.
    #[error("`{0}` is not a server name for TLS")]
    ServerName(String),
    /// The file of authorities cannot be read, or holds none.
    #[error("cannot read authorities from {path}: {reason}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system offers no authorities, and none were given.
    #[error("the system has no TLS authorities to trust: give a CA file")]
    NoAuthorities,
}
