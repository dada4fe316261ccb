//! One line of an access log: what became of the attempts of one request.

use std::time::Duration;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// HAProxy's `option httplog` or `option tcplog`.
    Haproxy,
    /// NGINX: [`NGINX_FORMAT`].
    Nginx,
}

/// The `log_format` of NGINX that is read.
pub const NGINX_FORMAT: &str =
    "plimsoll $upstream_addr;$upstream_status;$upstream_response_time;$upstream_header_time";
/// How its lines begin, behind what syslog puts before them.
const NGINX_MARK: &str = "plimsoll ";
/// Attempts of one request that are looked at.
const MOST_ATTEMPTS: usize = 16;
/// No request takes longer; a line that says so is wrong.
const LONGEST: Duration = Duration::from_secs(86_400);

/// An attempt at a server that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt<'a> {
    /// The pool, where the line names it.
    pub pool: Option<&'a str>,
    /// The server, by its name or its address, whichever the format has.
    pub server: &'a str,
    /// How long it was with the server.
    pub took: Duration,
    /// No connection, no valid answer, or a status of 5xx.
    pub failed: bool,
    /// Whether the server itself has answered; none where the log counts connections.
    pub answered: Option<bool>,
}

/// Reads a line; each attempt in it is told. A request that no server got has none.
///
/// # Errors
/// When it is not a line of this format: what is wrong with it.
pub fn read<'a>(
    format: LogFormat,
    line: &'a str,
    each: impl FnMut(Attempt<'a>),
) -> Result<(), &'static str> {
    match format {
        LogFormat::Haproxy => haproxy(line, each),
        LogFormat::Nginx => nginx(line, each),
    }
}

/// `… client:port [date] frontend backend/server TR/Tw/Tc/Tr/Ta status bytes - - ---- …`, or with `Tw/Tc/Tt bytes ----`
/// for connections.
fn haproxy<'a>(line: &'a str, mut each: impl FnMut(Attempt<'a>)) -> Result<(), &'static str> {
    // The date is the only word in brackets before the request, which is the last.
    let (_, rest) = line.split_once("] ").ok_or("no date in brackets")?;
    // The process number of syslog's tag stands in brackets too, with a colon behind it.
    let mut words = rest.split(' ').skip(1);
    let (pool, server) =
        words.next().and_then(|word| word.split_once('/')).ok_or("no backend/server")?;
    let timers = words.next().ok_or("no timers")?;
    let mut times = [None; 5];
    let mut count = 0;
    for text in timers.split('/') {
        let slot = times.get_mut(count).ok_or("more than five timers")?;
        // `+` stands before a total that was logged before the end.
        let text = text.strip_prefix('+').unwrap_or(text);
        let value: i64 = text.parse().map_err(|_| "a timer that is no number")?;
        *slot = u64::try_from(value).ok();
        count += 1;
    }
    // HAProxy's own answers: nobody else was asked.
    if server.starts_with('<') {
        return Ok(());
    }
    let ms = |all: Option<u64>, before: u64| {
        Duration::from_millis(all.unwrap_or(0).saturating_sub(before))
    };
    let attempt = match count {
        5 => {
            let [waited, queued, connected, answered, all] = times;
            let status: u16 = words.next().and_then(|word| word.parse().ok()).ok_or("no status")?;
            let ended = words.nth(3).ok_or("no termination state")?;
            let by_server = ended.starts_with(['S', 's']);
            Attempt {
                pool: Some(pool),
                server,
                took: ms(all, waited.unwrap_or(0) + queued.unwrap_or(0)),
                failed: connected.is_none() || by_server || status >= 500,
                answered: Some(answered.is_some()),
            }
        }
        3 => {
            let [queued, connected, all, ..] = times;
            let ended = words.nth(1).ok_or("no termination state")?;
            Attempt {
                pool: Some(pool),
                server,
                took: ms(all, queued.unwrap_or(0)),
                failed: connected.is_none() || ended.starts_with(['S', 's']),
                answered: None,
            }
        }
        _ => return Err("neither three timers nor five"),
    };
    if attempt.took > LONGEST {
        return Err("a time that cannot be");
    }
    each(attempt);
    Ok(())
}

/// Several attempts stand side by side, parted by `, `, and by ` : ` where the request was redirected.
fn nginx<'a>(line: &'a str, mut each: impl FnMut(Attempt<'a>)) -> Result<(), &'static str> {
    let at = line.find(NGINX_MARK).ok_or("not of the log_format that is expected")?;
    let rest = line[at + NGINX_MARK.len()..].trim_end();
    let mut lists = rest.split(';');
    let mut next = || lists.next().ok_or("fewer than four fields");
    let (addresses, statuses, times, heads) = (next()?, next()?, next()?, next()?);
    for (at, server) in parts(addresses).enumerate().take(MOST_ATTEMPTS) {
        // No server was asked.
        if server == "-" || server.is_empty() {
            continue;
        }
        let of = |list: &'a str| parts(list).nth(at).unwrap_or("-");
        let status: Option<u16> = of(statuses).parse().ok();
        let answered = of(heads) != "-";
        each(Attempt {
            pool: None,
            server,
            took: seconds(of(times))?,
            failed: !answered || status.is_none_or(|status| status >= 500),
            answered: Some(answered),
        });
    }
    Ok(())
}

/// The parts of a list. Its separators hold blanks, which no part does.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(' ').map(|part| part.trim_end_matches(',')).filter(|part| *part != ":")
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    if text == "-" {
        return Ok(Duration::ZERO);
    }
    let seconds: f64 = text.parse().map_err(|_| "a time that is no number")?;
    let took = Duration::try_from_secs_f64(seconds).map_err(|_| "a time that cannot be")?;
    if took > LONGEST { Err("a time that cannot be") } else { Ok(took) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: LogFormat, line: &str) -> Result<Vec<Attempt<'_>>, &'static str> {
        let mut found = Vec::new();
        read(format, line, |attempt| found.push(attempt)).map(|()| found)
    }

    const HTTP: &str = "<134>Nov 25 09:00:00 lb haproxy[7]: 127.0.0.1:1234 [25/Nov/2026:09:00:00.123] front~ shop/s1 \
                        5/10/1/23/40 200 150 - - ---- 3/1/0/0/0 0/0 \"GET /a] b/c HTTP/1.1\"";

    #[test]
    fn haproxys_lines_tell_the_time_at_the_server() {
        let found = all(LogFormat::Haproxy, HTTP).expect("read");
        let [attempt] = &found[..] else { panic!("{found:?}") };
        assert_eq!((attempt.pool, attempt.server), (Some("shop"), "s1"));
        assert_eq!(attempt.took, Duration::from_millis(25), "without its time in the queue");
        assert_eq!((attempt.failed, attempt.answered), (false, Some(true)));
        for (line, failed, answered) in [
            (HTTP.replace(" 200 ", " 503 "), true, true),
            (HTTP.replace("5/10/1/23/40 200", "5/10/-1/-1/40 503"), true, false),
            (HTTP.replace("23/40 200", "-1/40 504").replace("----", "sH--"), true, false),
            (HTTP.replace("23/40 200", "-1/40 400").replace("----", "CH--"), false, false),
        ] {
            let found = all(LogFormat::Haproxy, &line).expect("read");
            assert_eq!((found[0].failed, found[0].answered), (failed, Some(answered)), "{line}");
        }
        let nobody = HTTP.replace("shop/s1 5/10/1/23/40", "shop/<NOSRV> 0/-1/-1/-1/0");
        assert_eq!(all(LogFormat::Haproxy, &nobody), Ok(Vec::new()));
        let tcp = "haproxy[7]: 127.0.0.1:1 [25/Nov/2026:09:00:00.123] f db/s2 4/1/+104 212 -- 1/1/1/1/0 0/0";
        let found = all(LogFormat::Haproxy, tcp).expect("read");
        assert_eq!((found[0].took, found[0].answered), (Duration::from_millis(100), None));
    }

    #[test]
    fn every_attempt_of_an_nginx_line_is_told() {
        let line = "<190>Nov 25 09:00:00 web nginx: plimsoll 10.0.0.1:80, [::1]:81 : 10.0.0.3:80;502, 200 : \
                    404;0.001, 0.250 : 0.003;-, 0.249 : 0.003";
        let found = all(LogFormat::Nginx, line).expect("read");
        let seen: Vec<_> = found.iter().map(|a| (a.server, a.took.as_millis(), a.failed)).collect();
        assert_eq!(
            seen,
            [("10.0.0.1:80", 1, true), ("[::1]:81", 250, false), ("10.0.0.3:80", 3, false)]
        );
        assert_eq!(all(LogFormat::Nginx, "plimsoll -;-;-;-"), Ok(Vec::new()));
    }

    #[test]
    fn malformed_lines_are_refused_and_never_panic() {
        let nginx = "plimsoll 10.0.0.1:80;200;0.001;0.001";
        for (format, good) in [(LogFormat::Haproxy, HTTP), (LogFormat::Nginx, nginx)] {
            assert!(all(format, good).is_ok());
            // Cut anywhere, and with any character replaced by an odd one.
            for at in (0..good.len()).filter(|at| good.is_char_boundary(*at)) {
                let _ = all(format, &good[..at]);
                for odd in [
                    "-",
                    "9999999999999999999999",
                    "é",
                    ";",
                    "/",
                    " ",
                    "\0",
                    "]",
                    "NaN",
                    "-1",
                    "inf",
                ] {
                    let mut line = good.to_owned();
                    line.replace_range(at..=at, odd);
                    let _ = all(format, &line);
                }
            }
            for bad in [
                "",
                " ",
                "\n",
                "<134>",
                "plimsoll",
                "] ",
                "a] b",
                "a] b c/d 1/2",
                "plimsoll a;b",
                "a] f b/s x/y/z 1 -- ",
            ] {
                assert!(all(format, bad).is_err(), "{bad:?}");
            }
        }
        for bad in [
            "plimsoll a:1;200;-5;1",
            "plimsoll a:1;200;1e30;1",
            "plimsoll a:1;200;nan;1",
            "plimsoll a:1;200;99999999;1",
        ] {
            assert!(all(LogFormat::Nginx, bad).is_err(), "{bad}");
        }
        assert!(all(LogFormat::Haproxy, &HTTP.replace("/40 200", "/99999999999 200")).is_err());
    }
}
