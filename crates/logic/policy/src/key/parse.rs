//! Where in a request a key stands.

/// From the path on.
pub(super) fn path(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let authority = target.windows(3).position(|w| w == b"://").map_or(0, |at| at + 3);
    let path = target[authority..].iter().position(|&c| c == b'/');
    path.map_or(&[], |at| &target[authority + at..])
}

/// Up to the first comma outside quotes, without blanks around; `None` when nothing is left.
pub(super) fn first_value(header: &[u8]) -> Option<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let end = header.iter().position(|&c| {
        let comma = c == b',' && !quoted;
        if c == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && c == b'\\' && !escaped;
        comma
    });
    let value = header[..end.unwrap_or(header.len())].trim_ascii();
    (!value.is_empty()).then_some(value)
}

/// The first parameter of this name; an empty one counts.
pub(super) fn query_param<'a>(target: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let query = &target[target.iter().position(|&c| c == b'?')? + 1..];
    query.split(|&c| c == b'&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
}

/// The first cookie of this name; an empty one counts.
pub(super) fn cookie<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut pairs = header.split(|&c| c == b';').map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
}

/// The cookie in a connection request (MS-RDPBCGR 2.2.1.1): 11 bytes of TPKT and X.224, then
/// `Cookie: name=value`, ended by CR LF.
pub(super) fn rdp_cookie<'a>(payload: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (word, rest) = payload.get(11..)?.split_at_checked(7)?;
    if !word.eq_ignore_ascii_case(b"Cookie:") {
        return None;
    }
    let rest = &rest[rest.iter().position(|&c| c != b' ')?..];
    let (found, rest) = rest.split_at_checked(name.len())?;
    if !found.eq_ignore_ascii_case(name) {
        return None;
    }
    let value = rest.strip_prefix(b"=")?;
    let value = &value[..value.windows(2).position(|w| w == b"\r\n")?];
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_ends_at_a_comma_that_is_not_quoted() {
        assert_eq!(first_value(b" a, b"), Some(&b"a"[..]));
        assert_eq!(first_value(br#""a,\",b" ; c, d"#), Some(&br#""a,\",b" ; c"#[..]));
        assert_eq!((first_value(b""), first_value(b" , b")), (None, None));
    }

    #[test]
    fn parameters_and_cookies_are_whole_names() {
        assert_eq!(query_param(b"/?xid=1&id=2&id=3", b"id"), Some(&b"2"[..]));
        assert_eq!(query_param(b"/?id=", b"id"), Some(&b""[..]));
        assert_eq!((query_param(b"/id=1", b"id"), query_param(b"/?id", b"id")), (None, None));
        assert_eq!(cookie(b"a=1; sid=x=y ;b=2", b"sid"), Some(&b"x=y"[..]));
        assert_eq!((cookie(b"xsid=1", b"sid"), cookie(b"sid=", b"sid")), (None, Some(&b""[..])));
    }

    #[test]
    fn a_remote_desktop_tells_its_user() {
        let packet =
            b"\x03\x00\x00\x2a\x25\xe0\x00\x00\x00\x00\x00Cookie: mstshash=ann\r\n\x01\x00";
        assert_eq!(rdp_cookie(packet, b"mstshash"), Some(&b"ann"[..]));
        assert_eq!(rdp_cookie(packet, b"MSTSHASH"), Some(&b"ann"[..]));
        assert_eq!(rdp_cookie(packet, b"msts"), None);
        assert_eq!((0..33).find_map(|n| rdp_cookie(&packet[..n], b"mstshash")), None, "cut short");
    }

    #[test]
    fn a_path_begins_behind_the_authority() {
        assert_eq!(path(b"/a"), b"/a");
        assert_eq!(path(b"https://h:1/a/b"), b"/a/b");
        assert_eq!(path(b"https://h"), b"");
    }
}
