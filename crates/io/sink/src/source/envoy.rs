//! Lines of Envoy's access log: its default text format, and JSON with the usual keys.
//!
//! Both name one server for each request, the last that was tried: earlier attempts of a retry are not logged.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::line::{Attempt, LONGEST};

/// Response flags by which the server, or the way to it, failed: no connection, cut, reset, timed out, retries used up,
/// not HTTP.
const BY_SERVER: [&str; 8] = ["UF", "UC", "UT", "UR", "LR", "URX", "UPE", "UMSDR"];
/// The client left, or sent what is no request.
const BY_CLIENT: [&str; 2] = ["DC", "DPE"];
/// What Envoy writes where there is nothing to say.
const NOTHING: &str = "-";

/// What a line of either form tells of one request.
struct Told<'a> {
    server: &'a str,
    /// 0: no answer, or a connection.
    status: u16,
    flags: &'a str,
    duration: Duration,
    /// The server's answer has begun, as far as Envoy says so.
    has_head: bool,
    is_connection: bool,
}

/// `[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM-SERVICE-TIME "…" "…" "…" "…" "UPSTREAM_HOST"`,
/// or an object with `upstream_host`, `response_code`, `response_flags` and `duration`.
///
/// # Errors
/// When it is neither: what is wrong with it.
pub(super) fn read<'a>(
    line: &'a str,
    mut each: impl FnMut(Attempt<'a>),
) -> Result<(), &'static str> {
    // Behind what syslog puts before; its structured data hold no brace.
    let json = line.find('{').filter(|_| line.trim_end().ends_with('}'));
    let told = match json {
        Some(at) => object(line[at..].trim_end())?,
        None => text(line.trim_end())?,
    };
    // Envoy's own answer: no server was asked.
    if told.server == NOTHING || told.server.is_empty() {
        return Ok(());
    }
    if told.duration > LONGEST {
        return Err("a time that cannot be");
    }
    each(attempt(&told));
    Ok(())
}

fn attempt<'a>(told: &Told<'a>) -> Attempt<'a> {
    let has = |known: &[&str]| told.flags.split(',').any(|flag| known.contains(&flag));
    let (by_server, by_client) = (has(&BY_SERVER), has(&BY_CLIENT));
    // Where Envoy adds no header of its own, an answer without a flag is the server's.
    let answered = told.has_head || told.status > 0 && !by_server && !by_client;
    let is_bad = !told.is_connection && (told.status >= 500 || told.status == 0);
    Attempt {
        pool: None,
        server: told.server,
        took: told.duration,
        failed: by_server || is_bad && (answered || !by_client),
        answered: (!told.is_connection).then_some(answered),
    }
}

fn text(line: &str) -> Result<Told<'_>, &'static str> {
    // A path has no blank in it: the first quote with a blank behind it ends the request.
    let (_, rest) = line.split_once("] \"").ok_or("no date in brackets before a request")?;
    let (request, rest) = rest.split_once("\" ").ok_or("a request without an end")?;
    // What clients send stands in quotes between the numbers and the last, which is Envoy's own.
    let server = rest.strip_suffix('"').and_then(|rest| rest.rsplit_once('"'));
    let (rest, server) = server.ok_or("no upstream host in quotes")?;
    let mut words = rest.split(' ');
    let mut next = || words.next().ok_or("too few fields");
    let (status, flags, received, sent) = (next()?, next()?, next()?, next()?);
    let (duration, head) = (next()?, next()?);
    if [received, sent].iter().any(|bytes| bytes.parse::<u64>().is_err()) {
        return Err("a number of bytes that is none");
    }
    if !words.next().is_some_and(|word| word.starts_with('"')) {
        return Err("no quoted fields behind the numbers");
    }
    Ok(Told {
        server: host(server)?,
        status: status.parse().map_err(|_| "no status")?,
        flags: known(flags)?,
        duration: millis(duration.parse().map_err(|_| "a time that is no number")?)?,
        has_head: match head {
            NOTHING => false,
            head => millis(head.parse().map_err(|_| "a time that is no number")?).is_ok(),
        },
        is_connection: request.starts_with("- "),
    })
}

/// A value that some versions of Envoy write as a number and others as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number<'a> {
    Itself(f64),
    Written(&'a str),
}

impl Number<'_> {
    fn value(&self) -> Option<f64> {
        match self {
            Number::Itself(value) => Some(*value),
            Number::Written(text) => text.parse().ok(),
        }
    }
}

#[derive(Deserialize)]
struct Object<'a> {
    upstream_host: Option<&'a str>,
    #[serde(borrow)]
    response_code: Option<Number<'a>>,
    response_flags: Option<&'a str>,
    #[serde(borrow)]
    duration: Option<Number<'a>>,
    #[serde(borrow, default)]
    upstream_service_time: Option<Number<'a>>,
    #[serde(default, deserialize_with = "present")]
    method: Option<serde_json::Value>,
}

/// Distinguishes a value of null, as of a connection, from one that is not there.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}

fn object(text: &str) -> Result<Told<'_>, &'static str> {
    let read: Object<'_> = serde_json::from_str(text)
        .map_err(|_| "no object with upstream_host, response_code, response_flags and duration")?;
    let host_named = read.upstream_host.unwrap_or(NOTHING);
    let duration = read.duration.as_ref().and_then(Number::value).ok_or("no duration")?;
    // What Envoy cannot tell is null, or a dash.
    let status = match &read.response_code {
        None | Some(Number::Written(NOTHING)) => 0.0,
        Some(code) => code.value().ok_or("no status")?,
    };
    if !(0.0..=999.0).contains(&status) {
        return Err("no status");
    }
    let is_connection = matches!(&read.method, Some(serde_json::Value::Null))
        || read.method.as_ref().and_then(|m| m.as_str()) == Some(NOTHING);
    Ok(Told {
        server: if host_named == NOTHING { NOTHING } else { host(host_named)? },
        status: status as u16,
        flags: known(read.response_flags.unwrap_or(NOTHING))?,
        duration: millis(duration)?,
        has_head: read.upstream_service_time.as_ref().and_then(Number::value).is_some(),
        is_connection,
    })
}

/// A host as Envoy writes it: an address and a port, or nothing.
fn host(text: &str) -> Result<&str, &'static str> {
    let is_one = text == NOTHING || !text.is_empty() && !text.contains(char::is_whitespace);
    if is_one { Ok(text) } else { Err("no upstream host in quotes") }
}

/// Response flags: capital letters and digits, parted by commas, or nothing.
fn known(flags: &str) -> Result<&str, &'static str> {
    let is_flag = |c: char| c.is_ascii_alphanumeric() || c == ',';
    let all = flags == NOTHING || !flags.is_empty() && flags.chars().all(is_flag);
    if all { Ok(flags) } else { Err("no response flags") }
}

fn millis(value: f64) -> Result<Duration, &'static str> {
    Duration::try_from_secs_f64(value / 1e3).map_err(|_| "a time that cannot be")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<13>1 2026-11-25T09:00:00.1Z lb envoy - - [timeQuality tzKnown=\"1\"] \
                        [2026-11-25T09:00:00.000Z] \"GET /a?b=]c HTTP/1.1\" 200 - 0 135 28 27 \"-\" \"curl \\\"7\" \
                        \"id\" \"shop.example\" \"10.0.0.1:80\"";
    const JSON: &str = "{\"upstream_host\":\"10.0.0.1:80\",\"response_code\":200,\"response_flags\":\"-\",\
                        \"duration\":28,\"upstream_service_time\":\"27\",\"method\":\"GET\",\"path\":\"/\\\"}\"}";

    fn all(line: &str) -> Result<Vec<Attempt<'_>>, &'static str> {
        let mut found = Vec::new();
        read(line, |attempt| found.push(attempt)).map(|()| found)
    }

    #[test]
    fn both_forms_tell_the_same() {
        for line in [TEXT.to_owned(), format!("{TEXT}\n"), JSON.to_owned(), format!("<13>x {JSON}")]
        {
            let found = all(&line).expect(&line);
            let [attempt] = &found[..] else { panic!("{found:?}") };
            assert_eq!((attempt.pool, attempt.server), (None, "10.0.0.1:80"), "{line}");
            assert_eq!(attempt.took, Duration::from_millis(28), "{line}");
            assert_eq!((attempt.failed, attempt.answered), (false, Some(true)), "{line}");
        }
    }

    /// Written by Envoy 1.40 itself: a client that forges its user agent, a server that answers 500, one that refuses,
    /// none, one that is too slow, a client that leaves, and a connection.
    const WRITTEN: &str = r#"
[2026-11-25T14:26:38.809Z] "GET /ok HTTP/1.1" 200 - 0 2 1 0 "-" "x" 503 UF "y" "228d814a" "127.0.0.1:28080" "127.0.0.1:28090"
[2026-11-25T14:26:38.823Z] "GET /bad HTTP/1.1" 500 - 0 2 1 1 "-" "x" 503 UF "y" "8f02ac94" "127.0.0.1:28080" "127.0.0.1:28090"
[2026-11-25T14:26:38.836Z] "GET /dead HTTP/1.1" 503 UF 0 98 0 - "-" "x" 503 UF "y" "ea8cbc4e" "127.0.0.1:28080" "127.0.0.1:28091"
[2026-11-25T14:26:38.851Z] "GET /none HTTP/1.1" 503 UH 0 19 0 - "-" "x" 503 UF "y" "74269a7d" "127.0.0.1:28080" "-"
[2026-11-25T14:26:38.860Z] "GET /slow HTTP/1.1" 504 UT 0 24 201 - "-" "x" 503 UF "y" "4e599aaa" "127.0.0.1:28080" "127.0.0.1:28090"
[2026-11-25T14:26:39.083Z] "GET /slow HTTP/1.1" 0 DC 0 0 142 - "-" "curl/7.88.1" "dc52ad56" "127.0.0.1:28080" "127.0.0.1:28090"
[2026-11-25T14:26:39.240Z] "- - -" 0 - 79 113 4 - "-" "-" "-" "-" "127.0.0.1:28090"
{"duration":1,"method":"GET","response_code":200,"response_flags":"-","upstream_host":"127.0.0.1:28090","upstream_service_time":"0"}
{"duration":1,"method":"GET","response_code":500,"response_flags":"-","upstream_host":"127.0.0.1:28090","upstream_service_time":"1"}
{"duration":0,"method":"GET","response_code":503,"response_flags":"UF","upstream_host":"127.0.0.1:28091","upstream_service_time":null}
{"duration":0,"method":"GET","response_code":503,"response_flags":"UH","upstream_host":null,"upstream_service_time":null}
{"duration":201,"method":"GET","response_code":504,"response_flags":"UT","upstream_host":"127.0.0.1:28090","upstream_service_time":null}
{"duration":142,"method":"GET","response_code":0,"response_flags":"DC","upstream_host":"127.0.0.1:28090","upstream_service_time":null}
"#;

    #[test]
    fn what_envoy_itself_has_written_is_read() {
        let mut seen = Vec::new();
        for line in WRITTEN.lines().filter(|line| !line.is_empty()) {
            let all = all(line).expect(line);
            let told = all.first();
            seen.push(told.map(|a| (a.server, a.took.as_millis(), a.failed, a.answered)));
        }
        let live = "127.0.0.1:28090";
        let requests = [
            Some((live, 1, false, Some(true))),
            Some((live, 1, true, Some(true))),
            Some(("127.0.0.1:28091", 0, true, Some(false))),
            None,
            Some((live, 201, true, Some(false))),
            Some((live, 142, false, Some(false))),
        ];
        let connection = Some((live, 4, false, None));
        let expected: Vec<_> =
            requests.iter().chain([&connection]).chain(&requests).copied().collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn flags_and_statuses_say_whose_failure_it_was() {
        for (numbers, failed, answered) in [
            ("503 UF 0 91 0 -", true, false),
            ("503 URX,UF 0 91 5 -", true, false),
            ("503 UC 0 95 3 -", true, false),
            ("504 UT 0 24 1000 -", true, false),
            ("500 - 0 1 4 4", true, true),
            // Headers of Envoy's own are suppressed: a status without a flag is the server's.
            ("200 - 0 1 4 -", false, true),
            ("404 - 0 1 4 -", false, true),
            // The client left: before the answer, within it, and within one of 500.
            ("0 DC 0 0 70 -", false, false),
            ("200 DC 0 10 70 12", false, true),
            ("500 DC 0 10 70 12", true, true),
            // Cut in the midst of an answer.
            ("200 UC 0 10 70 12", true, true),
            ("0 - 0 0 70 -", true, false),
        ] {
            let line = TEXT.replace("200 - 0 135 28 27", numbers);
            let found = all(&line).expect(&line);
            assert_eq!((found[0].failed, found[0].answered), (failed, Some(answered)), "{numbers}");
        }
        // Envoy's own answers: no server was asked.
        for numbers in ["503 UH 0 19 0 -", "404 NR 0 0 0 -", "429 RL 0 0 0 -"] {
            let line = TEXT.replace("200 - 0 135 28 27", numbers).replace("10.0.0.1:80", "-");
            assert_eq!(all(&line), Ok(Vec::new()), "{numbers}");
        }
        let null = JSON.replace("\"10.0.0.1:80\"", "null").replace("200", "503");
        assert_eq!(all(&null), Ok(Vec::new()));
    }

    #[test]
    fn connections_are_counted_without_answers() {
        for (numbers, failed) in [("0 - 12 34 105 -", false), ("0 UF,URX 0 0 0 -", true)] {
            let line = format!(
                "[2026-11-25T09:00:00.000Z] \"- - -\" {numbers} \"-\" \"-\" \"-\" \"-\" \"10.0.0.1:80\""
            );
            let found = all(&line).expect(&line);
            assert_eq!((found[0].failed, found[0].answered), (failed, None), "{line}");
        }
        let json = JSON.replace("\"GET\"", "null").replace(":200", ":0");
        assert_eq!(all(&json).expect("read")[0].answered, None);
    }

    #[test]
    fn what_clients_send_does_not_make_a_line_something_else() {
        for forged in [
            "x\" 200 - 0 0 1 1 \"-\" \"-\" \"-\" \"-\" \"6.6.6.6:6\"",
            "\"6.6.6.6:6\"",
            "] \"GET / HTTP/1.1\" 503 UF 0 0 99999 - \"",
            "{}",
        ] {
            let line = TEXT.replace("curl \\\"7", forged);
            let found = all(&line).expect(&line);
            assert_eq!(
                (found[0].server, found[0].took.as_millis(), found[0].failed),
                ("10.0.0.1:80", 28, false),
                "{forged}"
            );
        }
    }

    #[test]
    fn malformed_lines_are_refused_and_never_panic() {
        for good in [TEXT, JSON] {
            for at in (0..good.len()).filter(|at| good.is_char_boundary(*at)) {
                let _ = all(&good[..at]);
                let _ = all(&good[at..]);
                for odd in ["", "-", "99999999999999999999", "é", "\"", "{", "}", "]", " ", "\0"] {
                    let mut line = good.to_owned();
                    line.replace_range(at..=at, odd);
                    let _ = all(&line);
                }
            }
        }
        for bad in ["", " ", "<13>", "] \"", "[x] \"GET / HTTP/1.1\"", "{}", "{", "[]", "null"] {
            assert!(all(bad).is_err(), "{bad:?}");
        }
        for numbers in [
            "abc - 0 1 4 4",
            "200 é 0 1 4 4",
            "200 - x 1 4 4",
            "200 - 0 -1 4 4",
            "200 - 0 1 -4 4",
            "200 - 0 1 NaN 4",
            "200 - 0 1 inf 4",
            "200 - 0 1 99999999999 4",
            "200 - 0 1 4 x",
            "200 - 0 1 4",
            "70000 - 0 1 4 4",
            "200 - 0 1",
        ] {
            let line = TEXT.replace("200 - 0 135 28 27", numbers);
            assert!(all(&line).is_err(), "{numbers}");
        }
        for (from, to) in [
            ("28,", "-28,"),
            ("28,", "null,"),
            ("28,", "1e30,"),
            ("28,", "\"NaN\","),
            ("28,", "{},"),
            (":200", ":-1"),
            (":200", ":1e9"),
            (":200", ":\"x\""),
            ("\"-\"", "7"),
            ("\"10.0.0.1:80\"", "\"a b\""),
            ("\"10.0.0.1:80\"", "[]"),
            ("\"upstream_host\"", "\"upstream_host\":\"x\",\"upstream_host\""),
        ] {
            let line = JSON.replacen(from, to, 1);
            assert!(all(&line).is_err(), "{line}");
        }
    }
}
