//! One line of an access log: what became of the attempts of one request.

use std::time::Duration;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// HAProxy's `option httplog` or `option tcplog`.
    Haproxy,
    /// NGINX: [`NGINX_FORMAT`].
    Nginx,
    /// Envoy's default format, or JSON with the usual keys.
    Envoy,
}

/// The `log_format` of NGINX that is read.
pub const NGINX_FORMAT: &str = "plimsoll $upstream_addr;$upstream_status;$upstream_response_time;$upstream_header_time;\
     $status";
/// How its lines begin, behind what syslog puts before them.
const NGINX_MARK: &str = "plimsoll ";
/// What NGINX logs where the client gave up, in its upload or before an answer: the server is not to blame.
const GIVEN_UP: [u16; 3] = [400, 408, 499];
/// Attempts of one request that are looked at.
const MOST_ATTEMPTS: usize = 16;
/// No request takes longer; a line that says so is wrong.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// An attempt at a server that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt<'a> {
    /// The pool, where the line names it.
    pub pool: Option<&'a str>,
    /// The server, by its name or its address, whichever the format has.
    pub server: &'a str,
    /// How long it was with the server.
    pub took: Duration,
    /// No connection, no valid answer (unless the client gave up before), or a status of 5xx.
    pub failed: bool,
    /// Whether the server itself has answered; none where the log counts connections.
    pub answered: Option<bool>,
}

/// Reads a line; each attempt in it is reported. A request that no server got has none.
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
        LogFormat::Envoy => super::envoy::read(line, each),
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
    // HAProxy's own answers: no server was asked.
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
            let (by_client, by_server) = ended_by(ended);
            // Without an answer of the server the status is HAProxy's own.
            let is_bad = connected.is_none() || status >= 500;
            Attempt {
                pool: Some(pool),
                server,
                took: ms(all, waited.unwrap_or(0) + queued.unwrap_or(0)),
                failed: by_server || is_bad && !(by_client && answered.is_none()),
                answered: Some(answered.is_some()),
            }
        }
        3 => {
            let [queued, connected, all, ..] = times;
            let ended = words.nth(1).ok_or("no termination state")?;
            let (by_client, by_server) = ended_by(ended);
            Attempt {
                pool: Some(pool),
                server,
                took: ms(all, queued.unwrap_or(0)),
                failed: by_server || connected.is_none() && !by_client,
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

/// Whether a termination state says that the client ended it, or the server: by closing, or by being silent too long.
fn ended_by(state: &str) -> (bool, bool) {
    (state.starts_with(['C', 'c']), state.starts_with(['S', 's']))
}

/// Several attempts stand side by side, parted by `, `, and by ` : ` where the request was redirected. Lines without
/// `$status` are of a format that was given before.
fn nginx<'a>(line: &'a str, mut each: impl FnMut(Attempt<'a>)) -> Result<(), &'static str> {
    // A host may be called so too: what syslog puts before is no part of it.
    let at = line.rfind(NGINX_MARK).ok_or("not of the log_format that is expected")?;
    let rest = line[at + NGINX_MARK.len()..].trim_end();
    let mut lists = rest.split(';');
    let mut next = || lists.next().ok_or("fewer than four fields");
    let (addresses, statuses, times, heads) = (next()?, next()?, next()?, next()?);
    let own: Option<u16> = lists.next().and_then(|status| status.parse().ok());
    // Attempts before the last were given up by NGINX itself.
    let last = parts(addresses).count().saturating_sub(1);
    for (at, server) in parts(addresses).enumerate().take(MOST_ATTEMPTS) {
        // No server was asked.
        if server == "-" || server.is_empty() {
            continue;
        }
        let of = |list: &'a str| parts(list).nth(at).unwrap_or("-");
        let status: Option<u16> = of(statuses).parse().ok();
        let answered = of(heads) != "-";
        let given_up = at == last && own.is_some_and(|status| GIVEN_UP.contains(&status));
        let failed = match answered {
            true => status.is_none_or(|status| status >= 500),
            false => !given_up,
        };
        each(Attempt {
            pool: None,
            server,
            took: seconds(of(times))?,
            failed,
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
            // Clients that leave: before a connection, before an answer, and behind one of 500.
            (
                HTTP.replace("5/10/1/23/40 200", "5/10/-1/-1/40 503").replace("----", "CC--"),
                false,
                false,
            ),
            (HTTP.replace("23/40 200", "-1/40 503").replace("----", "cH--"), false, false),
            (HTTP.replace(" 200 ", " 500 ").replace("----", "CD--"), true, true),
        ] {
            let found = all(LogFormat::Haproxy, &line).expect("read");
            assert_eq!((found[0].failed, found[0].answered), (failed, Some(answered)), "{line}");
        }
        let nobody = HTTP.replace("shop/s1 5/10/1/23/40", "shop/<NOSRV> 0/-1/-1/-1/0");
        assert_eq!(all(LogFormat::Haproxy, &nobody), Ok(Vec::new()));
        let tcp = "haproxy[7]: 127.0.0.1:1 [25/Nov/2026:09:00:00.123] f db/s2 4/1/+104 212 -- 1/1/1/1/0 0/0";
        let found = all(LogFormat::Haproxy, tcp).expect("read");
        assert_eq!((found[0].took, found[0].answered), (Duration::from_millis(100), None));
        for (state, failed) in [("CC", false), ("cD", false), ("SC", true), ("--", true)] {
            let line = tcp.replace("4/1/+104 212 --", &format!("4/-1/104 0 {state}"));
            assert_eq!(all(LogFormat::Haproxy, &line).expect("read")[0].failed, failed, "{line}");
        }
    }

    #[test]
    fn every_attempt_of_an_nginx_line_is_reported() {
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
    fn a_client_that_gives_up_is_not_the_servers_failure_in_nginx_lines() {
        let failures = |line: &str| -> Vec<bool> {
            all(LogFormat::Nginx, line).expect("read").iter().map(|a| a.failed).collect()
        };
        for (line, failed) in [
            ("plimsoll a:1;-;0.100;-;499", &[false][..]),
            ("plimsoll a:1;-;0.100;-;408", &[false]),
            ("plimsoll a:1;-;0.100;-;400\n", &[false]),
            ("plimsoll a:1;504;0.100;-;504", &[true]),
            // It left while it read an answer.
            ("plimsoll a:1;500;0.100;0.050;499", &[true]),
            ("plimsoll a:1;200;0.100;0.050;499", &[false]),
            // The first attempt had failed before.
            ("plimsoll a:1, b:1;502, -;0.1, 0.2;-, -;499", &[true, false]),
            // Without the status, as the format was before: which side gave up is not known.
            ("plimsoll a:1;-;0.100;-", &[true]),
            // Status of a client's own mistake, answered by the server.
            ("plimsoll a:1;400;0.100;0.100;400", &[false]),
        ] {
            assert_eq!(failures(line), failed, "{line}");
        }
    }

    #[test]
    fn a_host_may_be_called_plimsoll() {
        let line = "<190>Nov 25 09:00:00 plimsoll nginx: plimsoll 10.0.0.1:80;200;0.001;0.001;200";
        let found = all(LogFormat::Nginx, line).expect("read");
        assert_eq!((found[0].server, found.len()), ("10.0.0.1:80", 1));
    }

    #[test]
    fn malformed_lines_are_refused_and_never_panic() {
        let nginx = "plimsoll 10.0.0.1:80;200;0.001;0.001;200";
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
