//! Sticky cookies: a client that comes back with the cookie it was given goes to the same backend, as long as that takes
//! requests. As HAProxy's `cookie NAME insert indirect nocache`: backends do not see it, and it is set only where it
//! would say something else than the client's.
//!
//! Its value is a keyed hash of the pool's and the backend's name (SipHash-2-4, 64 bits), so that it is the same in every
//! proxy with the same configuration and after a restart, and says nothing of addresses.

use std::fmt::Write as _;
use std::hash::Hasher;

use hyper::header::{self, HeaderMap, HeaderValue};
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};

use crate::balance::Roll;
use crate::config::Cookie;

/// Caches must not give one client's cookie to others.
const PRIVATE: &str = "private";

/// The cookie of one pool, and its value for each backend.
pub(crate) struct Sticky {
    name: Box<[u8]>,
    /// Values, in order, each with the backend's index.
    values: Vec<(u64, usize)>,
    /// What sets it, by index; those that have left have none.
    sets: Vec<Option<HeaderValue>>,
}

impl Sticky {
    /// For these members.
    pub(crate) fn new(cookie: &Cookie, pool: &str, roll: &Roll) -> Self {
        let key = cookie.key.as_deref().map_or([0; 16], |key| {
            let mut hasher = SipHasher128::new();
            hasher.write(key.as_bytes());
            hasher.finish128().as_bytes()
        });
        let mut sticky = Sticky {
            name: cookie.name.as_bytes().into(),
            values: Vec::new(),
            sets: vec![None; roll.members.len()],
        };
        let rest = attributes(cookie);
        for (index, member) in roll.present() {
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write(pool.as_bytes());
            // No name has this byte: no pool and backend are the same text as others.
            hasher.write_u8(0xff);
            hasher.write(member.backend.name.as_bytes());
            let value = hasher.finish();
            sticky.values.push((value, index));
            // Names and paths are checked where they are read.
            let text = format!("{}={value:016x}{rest}", cookie.name);
            sticky.sets[index] = HeaderValue::from_str(&text).ok();
        }
        sticky.values.sort_unstable();
        sticky
    }

    /// The backend that a client's cookies name.
    pub(crate) fn named<'c>(&self, mut cookies: impl Iterator<Item = &'c [u8]>) -> Option<usize> {
        let ours = cookies.find_map(|cookies| pairs(cookies).find_map(|pair| self.value(pair)))?;
        let value = parse(ours)?;
        let at = self.values.binary_search_by_key(&value, |(value, _)| *value).ok()?;
        Some(self.values[at].1)
    }

    /// What is ours of a pair.
    fn value<'c>(&self, pair: &'c [u8]) -> Option<&'c [u8]> {
        pair.strip_prefix(&*self.name)?.strip_prefix(b"=")
    }

    /// Whether a `Cookie` header has ours in it.
    pub(crate) fn is_in(&self, cookies: &[u8]) -> bool {
        pairs(cookies).any(|pair| self.value(pair).is_some())
    }

    /// The other cookies of a header, each as it is.
    pub(crate) fn others<'c>(&self, cookies: &'c [u8]) -> impl Iterator<Item = &'c [u8]> {
        pairs(cookies).filter(|pair| self.value(pair).is_none())
    }

    /// The backend that a request's cookies name; ours is removed.
    pub(crate) fn take(&self, headers: &mut HeaderMap) -> Option<usize> {
        let cookies = || headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
        if !cookies().any(|cookies| self.is_in(cookies)) {
            return None;
        }
        let named = self.named(cookies());
        let kept: Vec<HeaderValue> = cookies()
            .map(|cookies| self.others(cookies).collect::<Vec<_>>().join(&b"; "[..]))
            .filter(|cookies| !cookies.is_empty())
            // Parts of a value that was one.
            .filter_map(|cookies| HeaderValue::from_bytes(&cookies).ok())
            .collect();
        headers.remove(header::COOKIE);
        for cookies in kept {
            headers.append(header::COOKIE, cookies);
        }
        named
    }

    /// What sets the cookie for this backend.
    pub(crate) fn set(&self, backend: usize) -> Option<&HeaderValue> {
        self.sets.get(backend)?.as_ref()
    }

    /// Has a response set it.
    pub(crate) fn note(&self, headers: &mut HeaderMap, backend: usize) {
        if let Some(set) = self.set(backend) {
            headers.append(header::SET_COOKIE, set.clone());
            headers.append(header::CACHE_CONTROL, HeaderValue::from_static(PRIVATE));
        }
    }
}

/// Appends the headers that set a cookie.
pub(crate) fn write_set(set: &HeaderValue, out: &mut Vec<u8>) {
    let value = set.as_bytes();
    for piece in [b"set-cookie: ", value, b"\r\ncache-control: ", PRIVATE.as_bytes(), b"\r\n"] {
        out.extend_from_slice(piece);
    }
}

fn attributes(cookie: &Cookie) -> String {
    let mut text = format!("; Path={}", cookie.path);
    if let Some(age) = cookie.max_age {
        // To a string: it cannot fail.
        let _ = write!(text, "; Max-Age={}", age.as_secs());
    }
    for (is_set, attribute) in [(cookie.is_secure, "; Secure"), (cookie.is_http_only, "; HttpOnly")]
    {
        text.push_str(if is_set { attribute } else { "" });
    }
    if let Some(same_site) = cookie.same_site {
        let _ = write!(text, "; SameSite={}", same_site.word());
    }
    text
}

fn pairs(cookies: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = cookies.split(|b| *b == b';').map(<[u8]>::trim_ascii);
    pairs.filter(|pair| !pair.is_empty())
}

/// 16 hexadecimal digits, as they are written.
fn parse(value: &[u8]) -> Option<u64> {
    let is_ours = value.len() == 16 && value.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let digits = std::str::from_utf8(value).ok().filter(|_| is_ours)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Members;
    use crate::config::Backend;

    fn cookie(key: Option<&str>) -> Cookie {
        Cookie {
            name: "SRV".to_owned(),
            key: key.map(str::to_owned),
            max_age: Some(std::time::Duration::from_secs(60)),
            path: "/".to_owned(),
            is_secure: true,
            is_http_only: true,
            same_site: Some(crate::config::SameSite::Lax),
        }
    }

    fn sticky(key: Option<&str>, pool: &str) -> Sticky {
        let backend = |n: u8| Backend {
            name: format!("10.0.0.{n}:80"),
            address: ([10, 0, 0, n], 80).into(),
            weight: 1,
        };
        let members = Members::new(&[1, 2, 3].map(backend));
        Sticky::new(&cookie(key), pool, &members.read().0)
    }

    fn value(sticky: &Sticky, backend: usize) -> String {
        let set = sticky.set(backend).unwrap().to_str().unwrap();
        set.strip_prefix("SRV=").unwrap().split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_value_is_the_same_everywhere_and_shows_nothing() {
        let (one, same) = (sticky(None, "shop"), sticky(None, "shop"));
        let set = one.set(1).unwrap().to_str().unwrap();
        assert!(set.ends_with("; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax"), "{set}");
        assert_eq!(set, same.set(1).unwrap());
        assert!(!set.contains("10.0.0"));
        let others = [sticky(None, "other"), sticky(Some("0123456789abcdef"), "shop")];
        assert!(others.iter().all(|other| value(other, 1) != value(&one, 1)));
        assert_ne!(value(&one, 0), value(&one, 1));
        assert_eq!(one.set(9), None);
    }

    #[test]
    fn a_cookie_names_a_backend_or_nothing() {
        let sticky = sticky(None, "shop");
        let named = |text: &str| sticky.named(std::iter::once(text.as_bytes()));
        let two = value(&sticky, 2);
        assert_eq!(named(&format!("a=b; SRV={two};c=d")), Some(2));
        assert_eq!(named(&format!("SRV={two}")), Some(2));
        let upper = two.to_uppercase();
        for other in [
            String::new(),
            "SRV=".to_owned(),
            format!("SRV={two}0"),
            format!("XSRV={two}"),
            format!("SRV= {two}"),
            "SRV=0000000000000000".to_owned(),
            "SRV=+000000000000000".to_owned(),
            format!("SRV=bad; SRV={two}"),
            format!("srv={two}"),
        ] {
            assert_eq!(named(&other), None, "{other}");
        }
        assert!(upper == two || named(&format!("SRV={upper}")).is_none());
    }

    #[test]
    fn backends_see_all_cookies_but_ours() {
        let sticky = sticky(None, "shop");
        let mut headers = HeaderMap::new();
        let one = value(&sticky, 0);
        for text in [format!("a=1; SRV={one}; b=\"2\""), "SRV=old".to_owned(), "c=3;d=4".to_owned()]
        {
            headers.append(header::COOKIE, HeaderValue::from_str(&text).unwrap());
        }
        assert_eq!(sticky.take(&mut headers), Some(0));
        let left: Vec<&HeaderValue> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(left, ["a=1; b=\"2\"", "c=3; d=4"]);
        assert_eq!(sticky.take(&mut headers), None);
    }
}
