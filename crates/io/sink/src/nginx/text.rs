//! What the Lua balancer says: lines of words, ended by `end`, so that a part is never taken for the whole.

use std::net::SocketAddr;
use std::str::FromStr;

/// The form that this is written for.
const VERSION: &str = "plimsoll 1";

/// Its state at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Another one after a restart of NGINX.
    pub(super) generation: u64,
    /// How many weights the question changed.
    pub(super) changed: u32,
    pub(super) pools: Vec<Pool>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(super) name: String,
    pub(super) method: String,
    /// The plan whose weights are in force; none where they are those of the configuration.
    pub(super) epoch: Option<u64>,
    pub(super) servers: Vec<Server>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) address: Option<SocketAddr>,
    pub(super) weight: u32,
    pub(super) configured: u32,
    pub(super) in_flight: i64,
    pub(super) started: u64,
    pub(super) failed: u64,
    pub(super) answered: u64,
}

/// Reads an answer.
pub(super) fn read(text: &str) -> Result<Answer, String> {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    if first != VERSION {
        let shown: String = first.chars().take(80).collect();
        return Err(format!(
            "expected {VERSION:?}, found {shown:?}: is this the socket of the Lua balancer?"
        ));
    }
    let mut answer = Answer::default();
    for line in lines {
        let mut words = line.split(' ');
        match words.next() {
            Some("generation") => answer.generation = number(words.next(), line)?,
            Some("changed") => answer.changed = number(words.next(), line)?,
            Some("pool") => answer.pools.push(Pool {
                name: word(words.next(), line)?,
                method: word(words.next(), line)?,
                epoch: match words.next() {
                    Some("-") => None,
                    epoch => Some(number(epoch, line)?),
                },
                servers: Vec::new(),
            }),
            Some("server") => {
                let pool = answer.pools.last_mut().ok_or("a server of no pool")?;
                pool.servers.push(server(words, line)?);
            }
            Some("end") => return Ok(answer),
            // A newer balancer may say more.
            _ => {}
        }
    }
    Err("the answer has no end".to_owned())
}

fn server<'a>(mut words: impl Iterator<Item = &'a str>, line: &str) -> Result<Server, String> {
    Ok(Server {
        name: word(words.next(), line)?,
        address: word(words.next(), line)?.parse().ok(),
        weight: number(words.next(), line)?,
        configured: number(words.next(), line)?,
        in_flight: number(words.next(), line)?,
        started: number(words.next(), line)?,
        failed: number(words.next(), line)?,
        answered: number(words.next(), line)?,
    })
}

fn word(word: Option<&str>, line: &str) -> Result<String, String> {
    word.filter(|word| !word.is_empty())
        .map(str::to_owned)
        .ok_or_else(|| format!("{line:?} is too short"))
}

fn number<T: FromStr>(word: Option<&str>, line: &str) -> Result<T, String> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("{line:?} lacks a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "plimsoll 1\ngeneration 12\nchanged 2\nfuture 7\npool shop leastconn 9\n\
                        server s1 10.0.0.1:80 10 100 3 40 1 36\nserver s2 [::1]:80 0 100 -1 0 0 0\npool b roundrobin -\nend\n";

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let answer = read(TEXT).expect("whole");
        assert_eq!((answer.generation, answer.changed, answer.pools.len()), (12, 2, 2));
        let shop = &answer.pools[0];
        assert_eq!((shop.method.as_str(), shop.epoch), ("leastconn", Some(9)));
        let server = &shop.servers[0];
        assert_eq!((server.weight, server.in_flight, server.answered), (10, 3, 36));
        assert_eq!(answer.pools[1].epoch, None);
        let lines: Vec<&str> = TEXT.lines().collect();
        for cut in 0..lines.len() - 1 {
            assert!(read(&lines[..cut].join("\n")).is_err(), "{cut} lines");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused_and_never_panics() {
        for bad in [
            "",
            "HTTP/1.1 200 OK",
            "plimsoll 2\nend",
            "plimsoll 1\ngeneration x\nend",
            "plimsoll 1\nserver a b\nend",
            "plimsoll 1\npool\nend",
            "plimsoll 1\npool a b 1\nserver s 1.1.1.1:1 99999999999 1 1 1 1 1\nend",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
