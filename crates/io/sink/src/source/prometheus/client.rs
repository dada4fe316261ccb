//! One question to a Prometheus: an instant query over HTTP, on a connection of its own.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use plimsoll_config::Address;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest answer: a series takes some 200 bytes in it.
const MAX_ANSWER: usize = 16 << 20;

/// Where a Prometheus is: `http://HOST:PORT`, with the path before its `/api` where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub address: Address,
    /// Without a slash at its end.
    pub path: String,
}

impl Place {
    /// Reads a URL.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let rest = url.strip_prefix("http://").ok_or(match url.starts_with("https://") {
            true => "http://host:port: TLS is not supported; put a local proxy between",
            false => "http://host:port, with a path where Prometheus has one",
        })?;
        let (address, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let is_plain = |c: char| c.is_ascii_graphic() && !"?#\"<>\\^`{|}".contains(c);
        if !path.chars().all(is_plain) {
            return Err("http://host:port and a path, without a query");
        }
        let path = path.trim_end_matches('/');
        // A path within another API may have it: Kubernetes' proxy.
        if ["/api/v1", "/api/v1/query", "/api/v1/query_range"].iter().any(|end| path.ends_with(end))
        {
            return Err("http://host:port without /api/v1, which is added to it");
        }
        let address = address
            .parse()
            .map_err(|_| "http://host:port: a host and a port, such as http://127.0.0.1:9090")?;
        Ok(Place { address, path: path.to_owned() })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

/// Asks, and returns status and body of the answer.
///
/// # Errors
/// Why there is none.
pub(super) async fn ask(
    place: &Place,
    query: &str,
    limit: Duration,
) -> Result<(StatusCode, Bytes), String> {
    timeout(limit, exchange(place, query)).await.map_err(|_| format!("no answer in {limit:?}"))?
}

async fn exchange(place: &Place, query: &str) -> Result<(StatusCode, Bytes), String> {
    let address = &place.address;
    let stream = TcpStream::connect((address.host.bare(), address.port));
    let stream = stream.await.map_err(|error| format!("cannot connect: {error}"))?;
    let cut = |error: hyper::Error| format!("the connection was cut ({error})");
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(cut)?;
    // It ends with the sender; what goes wrong on it is the sender's error.
    tokio::spawn(connection);
    let request = Request::post(format!("{}/api/v1/query", place.path))
        .header("host", address.to_string())
        .header("content-type", "application/x-www-form-urlencoded")
        .header("connection", "close")
        .body(Full::new(Bytes::from(format!("query={}", encoded(query)))))
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(cut)?;
    let status = answer.status();
    let read = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = read.map_err(|error| format!("its answer could not be read ({error})"))?;
    Ok((status, body.to_bytes()))
}

/// Percent-encoded, as a form's values are.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_queries_encoded() {
        for (url, shown) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("http://prom.internal:9090/", "http://prom.internal:9090"),
            ("http://[::1]:9090/prometheus/", "http://[::1]:9090/prometheus"),
            ("http://k:8001/api/v1/namespaces/m/proxy", "http://k:8001/api/v1/namespaces/m/proxy"),
        ] {
            assert_eq!(Place::parse(url).map(|place| place.to_string()), Ok(shown.to_owned()));
        }
        for bad in [
            "127.0.0.1:9090",
            "https://h:1",
            "http://h",
            "http://u:p@h:1",
            "http://h:1/?a=b",
            "http://h:0",
            "http://h:1/a b",
            "http://h:1/api/v1/query",
            "",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(encoded("rate(x{a=\"é\"}[1m])"), "rate%28x%7Ba%3D%22%C3%A9%22%7D%5B1m%5D%29");
    }
}
