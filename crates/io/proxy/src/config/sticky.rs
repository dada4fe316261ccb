//! Cookies by which clients stay with their backends.

use std::time::Duration;

use plimsoll_config::Cursor;

/// The longest that a browser keeps a cookie (RFC 6265bis, section 5.5).
const LONGEST: Duration = Duration::from_secs(400 * 24 * 3_600);
/// A key that is shorter could be guessed.
const SHORTEST_KEY: usize = 16;

/// The cookie of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Backends' names are hashed with it; none: without one, so that whoever guesses a name can tell that it is right.
    pub key: Option<String>,
    /// How long clients keep it; none: until they end.
    pub max_age: Option<Duration>,
    /// For which paths clients send it.
    pub path: String,
    /// Whether clients send it over TLS alone.
    pub is_secure: bool,
    /// Whether scripts do not see it.
    pub is_http_only: bool,
    /// With which requests from other sites clients send it; none: as they like.
    pub same_site: Option<SameSite>,
}

/// With which requests from other sites clients send a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// With none.
    Strict,
    /// With those that open a page.
    Lax,
    /// With all.
    None,
}

impl SameSite {
    /// The attribute's value.
    pub fn word(self) -> &'static str {
        match self {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        }
    }
}

impl Cookie {
    pub(super) fn read(cursor: &Cursor<'_>) -> Option<Self> {
        let fields = cursor.fields(&[
            "name",
            "key",
            "max_age",
            "path",
            "secure",
            "http_only",
            "same_site",
        ])?;
        let name = fields.required("name", "the cookie's name", |c| {
            c.text_if("a cookie's name", is_name).map(str::to_owned)
        });
        let key = fields.optional("key", |c| {
            let what = format!("a secret of at least {SHORTEST_KEY} bytes");
            c.text_if(&what, |key| key.len() >= SHORTEST_KEY).map(str::to_owned)
        });
        let max_age = fields.optional("max_age", |c| c.duration(Duration::from_secs(1)..=LONGEST));
        let path = fields.or("path", "/".to_owned(), |c| {
            let valid = |path: &str| {
                path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b';')
            };
            c.text_if("a path that begins with /", valid).map(str::to_owned)
        });
        let is_secure = fields.or("secure", false, Cursor::boolean);
        let is_http_only = fields.or("http_only", true, Cursor::boolean);
        let same_site = fields.optional("same_site", |c| {
            c.one_of(&[
                ("strict", SameSite::Strict),
                ("lax", SameSite::Lax),
                ("none", SameSite::None),
            ])
        });
        let at = |key| fields.get(key).unwrap_or(cursor);
        let is_insecure = is_secure == Some(false);
        if same_site == Some(Some(SameSite::None)) && is_insecure {
            at("same_site")
                .problem::<()>("expected secure: true beside none: browsers drop it otherwise");
        }
        // What browsers hold these prefixes to (RFC 6265bis, section 4.1.3).
        let begins = |prefix: &str| {
            name.as_ref().is_some_and(|name| name.to_ascii_lowercase().starts_with(prefix))
        };
        if (begins("__secure-") || begins("__host-")) && is_insecure {
            at("name").problem::<()>(
                "expected secure: true beside such a name: browsers drop it otherwise",
            );
        }
        if begins("__host-") && path.as_ref().is_some_and(|path| path != "/") {
            at("path")
                .problem::<()>("expected / beside a name of __Host-: browsers drop it otherwise");
        }
        Some(Cookie {
            name: name?,
            key: key?,
            max_age: max_age?,
            path: path?,
            is_secure: is_secure?,
            is_http_only: is_http_only?,
            same_site: same_site?,
        })
    }
}

/// A token (RFC 6265, section 4.1.1).
fn is_name(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=128).contains(&name.len()) && name.bytes().all(valid)
}
