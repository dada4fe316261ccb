use crate::SinkError;

/// Refuses a name that HAProxy's own configuration would refuse. What is left holds no blank, slash,
/// semicolon or newline, so that a name can never carry a second command.
pub(super) fn check(what: &'static str, name: &str) -> Result<(), SinkError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let reason = match name.chars().find(|c| !allowed(*c)) {
        None if !name.is_empty() => return Ok(()),
        None => "it is empty".to_owned(),
        Some(c) => {
            format!("{c:?} is not allowed; HAProxy names hold letters, digits and `-` `_` `.` `:`")
        }
    };
    Err(SinkError::InvalidName { name: name.to_owned(), what, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_haproxy_itself_allows() {
        for good in ["s1", "web-01.example:80", "A_b", "3"] {
            check("server name", good).unwrap();
        }
        for bad in ["", "a b", "a/b", "a;b", "a\nb", "a\r", "#1", "é", "a\\b", "a\0"] {
            assert!(check("server name", bad).is_err(), "{bad:?}");
        }
    }
}
