//! A file with the inside of an `upstream`: what stands in it is kept as it is, but for the weights of its servers.
//!
//! ```nginx
//! # keep-alive and the rest stay as they are
//! server 10.0.0.11:8080 weight=100 max_fails=2;
//! server 10.0.0.12:8080 weight=100;
//! ```
//!
//! NGINX takes no weight of 0: such a server is `down`, with a comment by Plimsoll. While NGINX has not read the file
//! as it stands, its first line says so.

use std::fmt::Write as _;

/// Behind a server that has weight 0, and not because an administrator took it out.
const PARKED: &str = "# weight 0 by plimsoll";

/// The first line of a file that NGINX has not read.
const UNREAD: &str = "# plimsoll: NGINX has not read this file yet";

/// Whether the file says that NGINX has not read it.
pub(super) fn is_unread(text: &str) -> bool {
    text.lines().next() == Some(UNREAD)
}

/// The file, which says so.
pub(super) fn unread(text: &str) -> String {
    if is_unread(text) { text.to_owned() } else { format!("{UNREAD}\n{text}") }
}

/// The file as it is when NGINX has read it.
pub(super) fn as_read(text: &str) -> String {
    let rest = is_unread(text).then(|| text.split_once('\n').map_or("", |(_, rest)| rest));
    rest.unwrap_or(text).to_owned()
}

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
    let first = |line: &str| {
        let ends = |c: char| c.is_whitespace() || c == ';';
        line.trim().split(ends).next().unwrap_or_default().to_owned()
    };
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
    let mut servers = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let read = match is_server(text) {
            true => line(text).map(Some),
            false if hides_a_server(text) => {
                Err("a server behind another directive: give it a line to itself".to_owned())
            }
            false => Ok(None),
        };
        servers.extend(read.map_err(|why| format!("line {}: {why}", at + 1))?);
    }
    Ok(servers)
}

fn hides_a_server(line: &str) -> bool {
    let code = line.split('#').next().unwrap_or_default();
    code.split([';', '{', '}']).skip(1).any(is_server)
}

fn is_server(line: &str) -> bool {
    line.trim_start().strip_prefix("server").is_some_and(|rest| rest.starts_with([' ', '\t']))
}

fn line(text: &str) -> Result<Line, String> {
    let (directive, tail) = text.split_once(';').ok_or("a server without its semicolon")?;
    if directive.contains('#') {
        return Err("a server without its semicolon: a comment comes first".to_owned());
    }
    let comment = tail.trim_start();
    if !comment.is_empty() && !comment.starts_with('#') {
        return Err(format!(
            "`{}` behind the semicolon: a server has a line to itself, with nothing but a comment behind it",
            comment.trim_end()
        ));
    }
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
    if line.is_down && unparked(tail).is_some() {
        (line.is_down, line.weight) = (false, 0);
    }
    Ok(line)
}

/// What stood behind the semicolon before the server was parked; none where it is not.
fn unparked(tail: &str) -> Option<&str> {
    tail.trim_start()
        .strip_prefix(PARKED)
        .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '#']))
}

/// The file with these weights: nothing else in it changes, but for blanks in the lines of servers whose weight does.
pub(super) fn with_weights(text: &str, wanted: &dyn Fn(&str) -> Option<u32>) -> String {
    let mut new = String::with_capacity(text.len() + 64);
    for whole in text.split_inclusive('\n') {
        let old = whole.trim_end_matches(['\r', '\n']);
        let wanted = is_server(old)
            .then(|| line(old).ok())
            .flatten()
            .and_then(|line| Some((wanted(&line.name)?, line)));
        match wanted {
            Some((weight, line)) if weight != line.weight => server(&mut new, old, weight, &line),
            _ => new.push_str(old),
        }
        new.push_str(&whole[old.len()..]);
    }
    new
}

fn server(new: &mut String, old: &str, weight: u32, line: &Line) {
    let indent = &old[..old.len() - old.trim_start().len()];
    let (directive, tail) = old.split_once(';').unwrap_or((old, ""));
    let (was_parked, tail) = match unparked(tail) {
        Some(rest) => (true, rest),
        None => (false, tail),
    };
    let _ = write!(new, "{indent}server {}", line.name);
    let others = directive.split_whitespace().skip(2);
    for word in
        others.filter(|word| !word.starts_with("weight=") && (*word != "down" || !was_parked))
    {
        let _ = write!(new, " {word}");
    }
    let _ = match weight {
        0 => write!(new, " weight=1 down; {PARKED}{tail}"),
        _ => write!(new, " weight={weight};{tail}"),
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
    fn a_file_says_that_it_has_not_been_read_and_is_otherwise_the_same() {
        for file in [FILE, "", "server a:1;\r\n", UNREAD] {
            let waits = unread(file);
            assert!(is_unread(&waits) && waits.lines().filter(|line| *line == UNREAD).count() == 1);
            assert_eq!(unread(&waits), waits);
            assert_eq!(servers(&waits), servers(file));
            assert_eq!(as_read(&waits), as_read(file));
            assert!(!is_unread(&as_read(&waits)));
        }
        assert_eq!(as_read(&unread(FILE)), FILE);
    }

    #[test]
    fn parking_and_back_loses_nothing() {
        for file in [
            "server a:1 weight=5; # first; of two\nserver b:1 weight=5;\n",
            "server a:1 weight=5;# x\r\nserver b:1 weight=5;\r\n",
            "server a:1 weight=5;\t #\nserver b:1 weight=5;",
        ] {
            let of = |weight: u32| move |name: &str| (name == "a:1").then_some(weight);
            let parked = with_weights(file, &of(0));
            let read = servers(&parked).expect("read");
            assert_eq!((read[0].weight, read[0].is_down), (0, false), "{parked}");
            assert_eq!(with_weights(&parked, &of(0)), parked);
            assert_eq!(with_weights(&parked, &of(5)), file);
        }
        // An administrator's comment that begins with the same words: not ours.
        let other = "server a:1 down; # weight 0 by plimsolls\n";
        assert!(servers(other).expect("read")[0].is_down);
    }

    #[test]
    fn what_is_not_understood_is_named_by_its_line() {
        assert_eq!(
            servers("\nserver a:1\n"),
            Err("line 2: a server without its semicolon".to_owned())
        );
        for bad in ["server a:1; server b:1;", "server a:1; keepalive 8;", "server a:1 # c; d\n"] {
            assert!(servers(bad).is_err_and(|why| why.starts_with("line 1: ")), "{bad}");
        }
        assert!(servers("server a:1 weight=x;").is_err_and(|why| why.contains("weight=x")));
        assert!(servers("server ;").is_err());
        assert_eq!(servers("server_name a;\nservers b; # server c;\n"), Ok(Vec::new()));
        for bad in ["least_conn; server a:1;", "keepalive 8;\tserver\ta:1;"] {
            assert!(
                servers(bad).is_err_and(|why| why.contains("behind another directive")),
                "{bad}"
            );
        }
        assert_eq!(method("hash\t$uri;"), "hash");
        assert_eq!(
            (method(FILE), method("least_conn;\n"), method(" hash $uri consistent;")),
            ("weighted_round_robin", "leastconn", "hash")
        );
    }
}
