//! How messages say where their bodies end: by chunks, or by a length (RFC 9112, section 6). Bodies are framed anew here,
//! so a message that is passed on must say it in one way, and be nothing but chunked: another coding would be lost.

use hyper::header::{self, HeaderMap, HeaderValue};

/// What is wrong with a message's framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misframed {
    /// It has another transfer coding than `chunked`.
    Coding,
    /// It says `chunked` more than once.
    ChunkedTwice,
    /// It says several lengths, or one that is none.
    Length,
}

/// Whether a message is in chunks.
///
/// # Errors
/// What is wrong with its transfer codings.
pub(crate) fn is_chunked(headers: &HeaderMap) -> Result<bool, Misframed> {
    let (mut chunked, mut others) = (0, 0);
    for coding in headers.get_all(header::TRANSFER_ENCODING).iter().flat_map(items) {
        match coding.eq_ignore_ascii_case(b"chunked") {
            true => chunked += 1,
            false => others += 1,
        }
    }
    match (chunked, others) {
        (2.., _) => Err(Misframed::ChunkedTwice),
        (_, 1..) => Err(Misframed::Coding),
        _ => Ok(chunked == 1),
    }
}

/// Leaves of a response's framings the one that its body was read by: a length beside chunks would cut the body off for
/// its client, or have it wait for more, and a length that is said repeatedly is one.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn settle(headers: &mut HeaderMap) -> Result<(), Misframed> {
    if is_chunked(headers)? {
        headers.remove(header::CONTENT_LENGTH);
        return Ok(());
    }
    let mut items = headers.get_all(header::CONTENT_LENGTH).iter().flat_map(items);
    let Some(first) = items.next() else { return Ok(()) };
    let length = length(first).ok_or(Misframed::Length)?;
    let mut is_repeated = false;
    for item in items {
        if self::length(item) != Some(length) {
            return Err(Misframed::Length);
        }
        is_repeated = true;
    }
    if is_repeated {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}

/// Digits alone.
fn length(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?;
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(digits)?.parse().ok()
}

/// Of a list, empty ones too.
fn items(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &'static str, values: &[&'static str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn one_length_however_often_it_is_said() {
        let settled = |values: &[&'static str]| {
            let mut headers = map("content-length", values);
            settle(&mut headers)?;
            let left: Vec<_> = headers.get_all("content-length").iter().cloned().collect();
            Ok(left)
        };
        assert_eq!(settled(&[]), Ok(vec![]));
        for same in [&["5"][..], &["5, 5"], &["5", "5"], &["5,5", "05"]] {
            assert_eq!(settled(same), Ok(vec![HeaderValue::from_static("5")]), "{same:?}");
        }
        for wrong in [
            &["5, 6"][..],
            &["5", "6"],
            &["5,"],
            &[""],
            &["+5"],
            &["5 5"],
            &["99999999999999999999"],
        ] {
            assert_eq!(settled(wrong), Err(Misframed::Length), "{wrong:?}");
        }
    }

    #[test]
    fn chunked_once_and_alone() {
        let coded = |values: &[&'static str]| is_chunked(&map("transfer-encoding", values));
        assert_eq!(
            (coded(&[]), coded(&["chunked"]), coded(&["Chunked"])),
            (Ok(false), Ok(true), Ok(true))
        );
        for twice in
            [&["chunked, chunked"][..], &["chunked", "chunked"], &["chunked, gzip, chunked"]]
        {
            assert_eq!(coded(twice), Err(Misframed::ChunkedTwice), "{twice:?}");
        }
        for other in [
            &["gzip, chunked"][..],
            &["gzip", "chunked"],
            &["gzip"],
            &["identity"],
            &["chunked,"],
            &[""],
            &["chunked;a=b"],
        ] {
            assert_eq!(coded(other), Err(Misframed::Coding), "{other:?}");
        }
    }
}
