//! `plimsoll init`: writes a configuration for a balancer that runs already.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgGroup;
use plimsoll_sink::{FoundPool, NginxReloadConfig, Sink};
use plimsoll_terminal::{exit, fail, printable};

use crate::config::defaults;
use crate::place::{self, OnlyArgs, PlaceArgs};
use crate::run::looker::{all_exist, service_name};

/// Write a configuration for a running balancer, to standard output
#[derive(clap::Args, Clone, Debug)]
#[command(group = ArgGroup::new("what").required(true).arg("nginx_reload").args(place::FLAGS))]
pub struct InitArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// An NGINX without Lua, by the file that its upstream includes
    #[arg(long, value_name = "FILE", group = "balancer")]
    nginx_reload: Option<PathBuf>,
    #[command(flatten)]
    only: OnlyArgs,
    /// List the servers as they are now, in the place of `backends: auto`
    #[arg(long)]
    list: bool,
}

/// Servers that a comment names.
const NAMED: usize = 6;

/// Exits 1 when the balancer does not answer, or has nothing that can be helped.
pub fn run(args: &InitArgs) -> ExitCode {
    let file =
        args.nginx_reload.clone().map(|file| Sink::NginxReload(NginxReloadConfig::new(file)));
    // The arguments require one of them.
    let Some(sink) = args.place.sink().or(file) else { return ExitCode::from(exit::MALFORMED) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let looked = match runtime {
        Ok(runtime) => runtime.block_on(sink.look()).map_err(|error| error.to_string()),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    let text = looked.and_then(|pools| written(&sink, &pools, &args.only.backend, args.list));
    let text = match text {
        Ok(text) => text,
        Err(why) => return fail(&why),
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write the answer: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The configuration as a text.
fn written(
    sink: &Sink,
    pools: &[FoundPool],
    only: &[String],
    list: bool,
) -> Result<String, String> {
    let place = sink.place();
    all_exist(only, pools, &place)?;
    let chosen = pools.iter().filter(|pool| only.is_empty() || only.contains(&pool.name));
    let (helped, others): (Vec<&FoundPool>, Vec<&FoundPool>) =
        chosen.partition(|pool| pool.out_of_reach().is_none() || !list && pool.waits_for_names());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# Written by `plimsoll init` for {}. All keys: docs/configuration.md.\n#\n\
         #   plimsoll check  --config FILE             all mistakes at once\n\
         #   plimsoll doctor --config FILE             what prevents steering on the real system\n\
         #   plimsoll run    --config FILE --observe   changes nothing, shows what it would do\n\
         #   plimsoll run    --config FILE\n",
        printable(&place)
    );
    if helped.is_empty() {
        return Err(format!("{place}: none of its pools can be helped{}", reasons(&others, "; ")));
    }
    text.push_str("services:\n");
    let mut taken = BTreeSet::new();
    for pool in helped {
        service(&mut text, sink, pool, &service_name(short_name(sink, pool), &mut taken), list);
    }
    if !others.is_empty() {
        let _ = writeln!(text, "  # Out of reach:{}\n", reasons(&others, "\n  #   "));
    }
    let (path, listen) = (defaults::STORE_PATH, defaults::API_LISTEN);
    let _ = writeln!(
        text,
        "store: {{ path: {path} }}            # keeps what was learned\n\
         api: {{ listen: \"{listen}\" }}          # status, metrics, dashboard"
    );
    Ok(text)
}

/// What a service for a pool is called: a file's whole path says too much.
fn short_name<'a>(sink: &Sink, pool: &'a FoundPool) -> &'a str {
    let of_file = || Path::new(&pool.name).file_name()?.to_str();
    let name = if matches!(sink, Sink::NginxReload(_)) { of_file() } else { None };
    name.unwrap_or(&pool.name)
}

fn reasons(pools: &[&FoundPool], separator: &str) -> String {
    let reason = |pool: &&FoundPool| {
        let why = pool.out_of_reach().unwrap_or_default();
        format!("{separator}{}: {}", printable(&pool.name), printable(&why))
    };
    pools.iter().map(reason).collect()
}

fn service(text: &mut String, sink: &Sink, pool: &FoundPool, name: &str, list: bool) {
    let shown = pool.steerable().take(NAMED).map(|(name, at)| {
        // NGINX without Lua calls its servers by their addresses.
        let at = at.to_string();
        if *name == at { at } else { format!("{name} {at}") }
    });
    let shown: Vec<String> = shown.collect();
    let more = pool.steerable().count().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let _ = writeln!(text, "  # {}", printable(&pool.summary()));
    if list {
        let _ = writeln!(text, "  - name: {}\n    backends:", quoted(name));
        for (server, at) in pool.steerable() {
            let server = quoted(server);
            let _ = writeln!(text, "      - {{ name: {server}, address: \"{at}\" }}");
        }
    } else {
        let shown = shown.join(", ");
        let _ = writeln!(
            text,
            "  # now: {}{more}\n  - name: {}\n    backends: auto     # servers join and leave as the balancer \
             has them",
            printable(&shown),
            quoted(name)
        );
    }
    let (key, fields) = sink.with_pool(&pool.name).written();
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key}: {}", quoted(value))).collect();
    let _ = writeln!(text, "    sink: {{ {key}: {{ {} }} }}", fields.join(", "));
    if matches!(sink, Sink::NginxReload(_)) {
        text.push_str(SOURCE);
    }
    text.push('\n');
}

/// What NGINX without Lua needs beside it, for it tells nothing of its requests.
const SOURCE: &str = "    # NGINX sends its access log there (docs/nginx.md, \"Without Lua\"); or a Prometheus: docs/prometheus.md\n    \
                      source: { access_log: { listen: \"127.0.0.1:5514\", format: nginx } }\n";

/// Words that YAML, in one of its versions, takes for something else than a string.
const WORDS: [&str; 12] =
    ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "nil"];

/// A string as YAML: bare where nothing in it can be taken for anything else.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let is_word = WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    if begins && !is_word && text.chars().all(plain) {
        return text.to_owned();
    }
    // JSON's strings are YAML's.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Method, MethodKind};
    use plimsoll_sink::{FoundServer, HaproxyConfig, LeftAlone};

    use super::*;
    use crate::config;

    fn pool(name: &str, algo: &str, kind: MethodKind, servers: &[&str]) -> FoundPool {
        let server = |(name, port): (&&str, u16)| FoundServer {
            name: (*name).to_owned(),
            place: Ok(([10, 0, 0, 1], port).into()),
        };
        let servers = servers.iter().zip(1_000..).map(server).collect();
        let method = Method { name: algo.to_owned(), kind };
        FoundPool { name: name.to_owned(), method, servers, conflict: None, unknown: None }
    }

    fn sink() -> Sink {
        let socket = "/run/haproxy/admin.sock".parse().expect("an address");
        Sink::Haproxy(HaproxyConfig::new(socket, ""))
    }

    /// Every name that HAProxy takes, and YAML would take for something else.
    const ODD: [&str; 9] = ["007", "true", "No", "1e5", "-", "a:80", ".5", "0x1f", "null"];

    #[test]
    fn what_is_written_is_a_valid_configuration_whatever_the_names() {
        for list in [false, true] {
            let pools: Vec<FoundPool> = ODD
                .iter()
                .map(|name| pool(name, "leastconn", MethodKind::InFlight, &ODD))
                .chain([pool("hash", "uri", MethodKind::NoLiveWeights, &["s1", "s2"])])
                .collect();
            let text = written(&sink(), &pools, &[], list).expect("written");
            let read = config::parse("F", &text).unwrap_or_else(|e| panic!("{e:?} in {text}"));
            assert_eq!(read.services.len(), ODD.len());
            for (service, odd) in read.services.iter().zip(ODD) {
                assert_eq!((service.sink.value.first().pool(), service.auto), (odd, !list));
            }
            if list {
                let names: Vec<&str> =
                    read.services[0].backends.iter().map(|b| b.name.as_str()).collect();
                assert_eq!(names, ODD);
            }
            assert!(text.contains("#   hash: `balance uri` with a map-based hash"), "{text}");
        }
    }

    #[test]
    fn thousands_of_servers_are_listed_and_those_left_alone_are_not() {
        let names: Vec<String> = (0..3_000).map(|i| format!("s{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut many = pool("shop", "leastconn", MethodKind::InFlight, &names);
        many.servers[7].place = Err(LeftAlone::SameAddress);
        many.servers[8].place = Err(LeftAlone::Backup);
        let text = written(&sink(), &[many], &[], true).expect("written");
        let read = config::parse("F", &text).expect("valid");
        assert_eq!(read.services[0].backends.len(), 2_998);
        assert!(text.contains("s7 (a server before it has the same address)"), "{text:.400}");
    }

    #[test]
    fn nothing_to_help_is_said_with_every_reason() {
        let pools = [
            pool("hash", "uri", MethodKind::NoLiveWeights, &["s1", "s2"]),
            pool("one", "leastconn", MethodKind::InFlight, &["s1"]),
        ];
        let why = written(&sink(), &pools, &[], false).expect_err("nothing");
        assert!(why.contains("; hash: `balance uri`") && why.contains("; one: it has one server"));
        let only = ["two".to_owned()];
        let why = written(&sink(), &pools, &only, false).expect_err("unknown");
        assert!(why.contains("it has no \"two\"; it has hash, one"), "{why}");
    }

    #[test]
    fn a_file_of_nginx_gives_the_service_the_name_of_the_file() {
        let file = "/etc/nginx/shop.servers";
        let sink = Sink::NginxReload(NginxReloadConfig::new(file.into()));
        let mut of_file = pool(file, "weighted_round_robin", MethodKind::Split, &[]);
        let server = |port| {
            let at = ([10, 0, 0, 1], port).into();
            FoundServer { name: format!("10.0.0.1:{port}"), place: Ok(at) }
        };
        of_file.servers = [80, 81].map(server).into();
        let text = written(&sink, &[of_file], &[], false).expect("written");
        let read = config::parse("F", &text).unwrap_or_else(|e| panic!("{e:?} in {text}"));
        assert_eq!(read.services[0].name, "shop.servers");
        assert!(text.contains("# now: 10.0.0.1:80, 10.0.0.1:81\n"), "{text}");
    }
}
