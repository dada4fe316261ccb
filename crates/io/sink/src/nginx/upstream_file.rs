//! A file with the inside of an `upstream`: what stands in it is kept as it is, but for the weights of its servers.
//!
//! ```nginx
//! # keep-alive and the rest stay as they are
//! server 10.0.0.11:8080 weight=100 max_fails=2;
//! server 10.0.0.12:8080 weight=100;
//! ```
//!
//! NGINX takes no weight of 0: such a server is `down`, with a comment that says by whom.

use std::fmt::Write as _;

/// Behind a server that has weight 0, and not because an administrator took it out.
const PARKED: &str = "# weight 0 by plimsoll";

/// A server in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// What stands behind `server`.
    pub(super) name: String,
    pub(super) weight: u32,
    /// Taken out by an administrator.
    pub(super) is_down: bool,
    pub(super) is_backup: bool,
}

/// How the upstream picks. Its round robin has a name of its own: `roundrobin` is corrected several times a second.
pub(super) fn method(text: &str) -> &'static str {
    let first = |line: &str| line.trim().split([' ', ';']).next().unwrap_or_default().to_owned();
    match text
        .lines()
        .map(first)
        .find(|word| ["least_conn", "ip_hash", "hash", "random"].contains(&word.as_str()))
    {
        None => "weighted_round_robin",
        Some(word) => match word.as_str() {
            "least_conn" => "leastconn",
            "random" => "random",
            _ => "hash",
        },
    }
}

/// The servers of a file, in its order.
///
/// # Errors
/// The line that is not understood.
pub(super) fn servers(text: &str) -> Result<Vec<Line>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| is_server(line));
    lines.map(|(at, text)| line(text).map_err(|why| format!("line {}: {why}", at + 1))).collect()
}

fn is_server(line: &str) -> bool {
    line.trim_start().strip_prefix("server").is_some_and(|rest| rest.starts_with([' ', '\t']))
}

fn line(text: &str) -> Result<Line, String> {
    let (directive, comment) = text.split_once(';').ok_or("a server without its semicolon")?;
    let mut words = directive.split_whitespace().skip(1);
    let name = words.next().ok_or("a server without an address")?.to_owned();
    let mut line = Line { name, weight: 1, is_down: false, is_backup: false };
    for word in words {
        match word.split_once('=') {
            Some(("weight", weight)) => {
                line.weight =
                    weight.parse().map_err(|_| format!("weight={weight} is no number"))?;
            }
            _ if word == "down" => line.is_down = true,
            _ if word == "backup" => line.is_backup = true,
            _ => {}
        }
    }
    if line.is_down && comment.trim() == PARKED {
        (line.is_down, line.weight) = (false, 0);
    }
    Ok(line)
}

/// The file with these weights: nothing else in it changes.
pub(super) fn with_weights(text: &str, wanted: &dyn Fn(&str) -> Option<u32>) -> String {
    let mut new = String::with_capacity(text.len() + 64);
    for old in text.lines() {
        let wanted = is_server(old)
            .then(|| line(old).ok())
            .flatten()
            .and_then(|line| Some((wanted(&line.name)?, line)));
        match wanted {
            Some((weight, line)) if weight != line.weight => server(&mut new, old, weight, &line),
            _ => new.push_str(old),
        }
        new.push('\n');
    }
    new
}

fn server(new: &mut String, old: &str, weight: u32, line: &Line) {
    let indent = &old[..old.len() - old.trim_start().len()];
    let (directive, comment) = old.split_once(';').unwrap_or((old, ""));
    let comment = comment.trim();
    let was_parked = comment == PARKED;
    let _ = write!(new, "{indent}server {}", line.name);
    let others = directive.split_whitespace().skip(2);
    for word in
        others.filter(|word| !word.starts_with("weight=") && (*word != "down" || !was_parked))
    {
        let _ = write!(new, " {word}");
    }
    let _ = match weight {
        0 => write!(new, " weight=1 down; {PARKED}"),
        _ if was_parked || comment.is_empty() => write!(new, " weight={weight};"),
        _ => write!(new, " weight={weight}; {comment}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n  server 10.0.0.1:80 weight=10 max_fails=2; # first\n  server 10.0.0.2:80;\n\
                        \tserver [::1]:80 down;\nserver 10.0.0.4:80 backup weight=3;\nkeepalive 8;\n";

    #[test]
    fn only_weights_change_and_what_was_parked_comes_back() {
        let names: Vec<(String, u32)> =
            servers(FILE).expect("read").into_iter().map(|line| (line.name, line.weight)).collect();
        assert_eq!(names[..2], [("10.0.0.1:80".to_owned(), 10), ("10.0.0.2:80".to_owned(), 1)]);
        let same = with_weights(FILE, &|_| None);
        assert_eq!(same, FILE);
        let parked = with_weights(FILE, &|name| (name == "10.0.0.2:80").then_some(0));
        assert!(
            parked.contains("  server 10.0.0.2:80 weight=1 down; # weight 0 by plimsoll\n"),
            "{parked}"
        );
        let read = servers(&parked).expect("read");
        assert_eq!((read[1].weight, read[1].is_down), (0, false));
        assert!(read[2].is_down && read[3].is_backup);
        let back = with_weights(&parked, &|name| (name == "10.0.0.2:80").then_some(7));
        assert!(back.contains("  server 10.0.0.2:80 weight=7;\n"), "{back}");
        let grown = with_weights(FILE, &|name| (name == "10.0.0.1:80").then_some(20));
        assert!(grown.contains("server 10.0.0.1:80 max_fails=2 weight=20; # first"), "{grown}");
        assert_eq!(grown.replace(" max_fails=2 weight=20", " weight=10 max_fails=2"), FILE);
    }

    #[test]
    fn what_is_not_understood_is_named_by_its_line() {
        assert_eq!(
            servers("\nserver a:1\n"),
            Err("line 2: a server without its semicolon".to_owned())
        );
        assert!(servers("server a:1 weight=x;").is_err_and(|why| why.contains("weight=x")));
        assert!(servers("server ;").is_err());
        assert_eq!(servers("server_name a;\nservers b;\n"), Ok(Vec::new()));
        assert_eq!(
            (method(FILE), method("least_conn;\n"), method(" hash $uri consistent;")),
            ("weighted_round_robin", "leastconn", "hash")
        );
    }
}
