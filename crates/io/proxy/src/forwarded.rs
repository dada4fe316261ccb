//! Which client a request came from, for backends: `X-Forwarded-For`, `-Proto` and `-Host`, and `Forwarded` (RFC 7239).

use std::fmt::Write as _;
use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::config::{Forwarding, Note};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Notes in a request's headers which client it is from.
pub(crate) fn note(headers: &mut HeaderMap, how: Forwarding, client: IpAddr) {
    let client = client.to_canonical();
    match how.x_forwarded {
        Note::Off => {}
        note => x_forwarded(headers, note, client),
    }
    match how.forwarded {
        Note::Off => {}
        note => forwarded(headers, note, client),
    }
}

fn x_forwarded(headers: &mut HeaderMap, note: Note, client: IpAddr) {
    put(headers, FOR, note, &client.to_string());
    // What the first proxy said of the client counts, where it is believed.
    let keeps =
        |headers: &HeaderMap, name: HeaderName| note == Note::Append && headers.contains_key(name);
    if !keeps(headers, PROTO) {
        headers.insert(PROTO, HeaderValue::from_static("http"));
    }
    if !keeps(headers, HOST)
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(HOST, host);
    }
}

fn forwarded(headers: &mut HeaderMap, note: Note, client: IpAddr) {
    let mut text = match client {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    // Admitted as a host, it has no quotes in it.
    if let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok())
        && !host.is_empty()
    {
        let _ = write!(text, ";host=\"{host}\"");
    }
    text.push_str(";proto=http");
    put(headers, header::FORWARDED, note, &text);
}

/// Puts it after what was there, several headers made one, or in its place.
fn put(headers: &mut HeaderMap, name: HeaderName, note: Note, text: &str) {
    let mut whole = Vec::with_capacity(64);
    if note == Note::Append {
        for value in headers.get_all(&name) {
            whole.extend_from_slice(value.as_bytes());
            whole.extend_from_slice(b", ");
        }
    }
    whole.extend_from_slice(text.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&whole) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(how: Forwarding, given: &[(&'static str, &'static str)], client: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("shop:80"));
        for (name, value) in given {
            let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
            headers.append(name, value);
        }
        note(&mut headers, how, client.parse().unwrap());
        headers
    }

    #[test]
    fn what_was_there_is_kept_or_replaced() {
        let given = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.1.1.1"),
        ];
        let append = Forwarding { x_forwarded: Note::Append, forwarded: Note::Append };
        let headers = noted(append, &given, "::ffff:9.9.9.9");
        assert_eq!(headers[FOR], "1.1.1.1, 2.2.2.2, 9.9.9.9");
        assert_eq!(
            (&headers[PROTO], &headers[HOST]),
            (&"https".parse().unwrap(), &"shop:80".parse().unwrap())
        );
        let forwarded = "for=1.1.1.1, for=9.9.9.9;host=\"shop:80\";proto=http";
        assert_eq!(headers[header::FORWARDED], forwarded);
        let replace = Forwarding { x_forwarded: Note::Replace, forwarded: Note::Replace };
        let headers = noted(replace, &given, "fd00::1");
        assert_eq!(
            (&headers[FOR], &headers[PROTO]),
            (&"fd00::1".parse().unwrap(), &"http".parse().unwrap())
        );
        assert_eq!(headers[header::FORWARDED], "for=\"[fd00::1]\";host=\"shop:80\";proto=http");
        let off = Forwarding { x_forwarded: Note::Off, forwarded: Note::Off };
        assert_eq!(noted(off, &given, "9.9.9.9").get_all(FOR).iter().count(), 2, "as they came");
    }
}
