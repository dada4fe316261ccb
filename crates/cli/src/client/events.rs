//! `plimsoll events`: what was decided and seen, with reasons; with `--follow`, as it happens.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use plimsoll_api::wire::{Event, ServiceEvents};
use plimsoll_control::RecordKind;
use plimsoll_terminal::table::{Cell, Table, left};
use plimsoll_terminal::{Format, Screen, Tone, json, json_line};
use serde::Serialize;

use super::http::Client;
use super::{Common, Failure, finish};

/// Time between two looks at a daemon that is followed.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);
/// A daemon that is followed may be away this long: a restart takes seconds.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(30);

/// Show what was decided and seen, with reasons
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Go on with what happens next
    #[arg(short, long)]
    follow: bool,
    /// At most this many past events of each service
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

impl Args {
    /// The last few of these services.
    #[cfg(test)]
    pub(super) fn last(common: Common, limit: u32) -> Self {
        Args { common, follow: false, limit }
    }
}

/// `-o json`
#[derive(Serialize)]
struct Events<'a> {
    services: Vec<Of<'a>>,
}

#[derive(Serialize)]
struct Of<'a> {
    service: &'a str,
    events: &'a [Event],
}

/// `-o json --follow`: one event on a line.
#[derive(Serialize)]
struct Line<'a> {
    service: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    finish(|out| execute(args, &Screen::stdout(), out))
}

pub(super) fn execute(args: &Args, screen: &Screen, out: &mut dyn Write) -> Result<(), Failure> {
    let client = args.common.client()?;
    let zone = TimeZone::system();
    if args.follow {
        return follow(args, &client, &zone, screen, out);
    }
    let services: Vec<ServiceEvents> =
        args.common.each(&client, &format!("/events?limit={}", args.limit))?;
    if args.common.output == Format::Json {
        let of = |one| {
            let ServiceEvents { service, events, .. }: &ServiceEvents = one;
            Of { service, events }
        };
        return Ok(json(out, &Events { services: services.iter().map(of).collect() })?);
    }
    let all = by_time(&services);
    if all.is_empty() {
        writeln!(out, "nothing has happened yet")?;
        return Ok(());
    }
    let mut table =
        Table::new([left("TIME"), left("SERVICE"), left("BACKEND"), left("KIND"), left("REASON")]);
    for (service, event) in all {
        let [time, service, backend, kind, reason] = cells(service, event, &zone);
        table.row([time, service, backend, kind, reason]);
    }
    write!(out, "{}", table.render(screen))?;
    Ok(())
}

/// The events of all services, oldest first.
fn by_time(services: &[ServiceEvents]) -> Vec<(&str, &Event)> {
    let mut all: Vec<(&str, &Event)> = services
        .iter()
        .flat_map(|one| one.events.iter().map(|event| (one.service.as_str(), event)))
        .collect();
    // One service stays in its own order, whatever the wall clock did meanwhile.
    if services.len() > 1 {
        all.sort_by_key(|(_, event)| event.unix_ms);
    }
    all
}

fn cells(service: &str, event: &Event, zone: &TimeZone) -> [Cell; 5] {
    let (kind, tone) = kind(event.kind);
    [
        local(event.unix_ms, zone).into(),
        service.into(),
        event.backend.as_deref().unwrap_or("-").into(),
        Cell::toned(kind, tone),
        (&event.reason).into(),
    ]
}

fn local(unix_ms: i64, zone: &TimeZone) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(time) => time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        Err(_) => "-".to_owned(),
    }
}

fn kind(kind: RecordKind) -> (&'static str, Tone) {
    match kind {
        RecordKind::Plan => ("plan", Tone::Plain),
        RecordKind::Rollback => ("rollback", Tone::Warn),
        RecordKind::SetAside => ("set aside", Tone::Warn),
        RecordKind::Restored => ("restored", Tone::Good),
        RecordKind::Failed => ("failed", Tone::Bad),
        RecordKind::Ejected => ("ejected", Tone::Bad),
        RecordKind::GivenBack => ("given back", Tone::Good),
        RecordKind::Returned => ("returned", Tone::Good),
        RecordKind::Joined => ("joined", Tone::Good),
        RecordKind::Left => ("left", Tone::Warn),
        RecordKind::Drift => ("drift", Tone::Warn),
        RecordKind::Doubted => ("doubted", Tone::Plain),
        RecordKind::Relearned => ("relearned", Tone::Plain),
        RecordKind::Underestimated => ("underestimated", Tone::Plain),
        RecordKind::Refresh => ("refresh", Tone::Plain),
        RecordKind::Phase => ("phase", Tone::Plain),
        RecordKind::Balancer => ("balancer", Tone::Warn),
        RecordKind::Foreign => ("foreign", Tone::Warn),
        RecordKind::Warning => ("warning", Tone::Warn),
    }
}

/// Prints past events, then new ones as they come, until it is interrupted or the daemon stays away.
fn follow(
    args: &Args,
    client: &Client,
    zone: &TimeZone,
    screen: &Screen,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut cursors = Cursors::new(args.limit);
    let mut answered: Option<Instant> = None;
    loop {
        match cursors.next(args, client) {
            Ok(services) => {
                answered = Some(Instant::now());
                for (service, event) in by_time(&services) {
                    if args.common.output == Format::Json {
                        json_line(out, &Line { service, event })?;
                    } else {
                        write_line(out, &cells(service, event, zone), screen)?;
                    }
                }
                out.flush()?;
            }
            // Restarted meanwhile, perhaps: never at the first look.
            Err(Failure::NoDaemon { .. })
                if answered.is_some_and(|at| at.elapsed() < FOLLOW_PATIENCE) => {}
            Err(failure) => return Err(failure),
        }
        sleep(FOLLOW_INTERVAL);
    }
}

/// One event on one line; what comes later cannot be aligned with it.
fn write_line(out: &mut dyn Write, cells: &[Cell], screen: &Screen) -> std::io::Result<()> {
    let painted: Vec<String> = cells.iter().map(|cell| cell.painted(screen)).collect();
    writeln!(out, "{}", painted.join("  "))
}

/// How far each service has been read.
pub(super) struct Cursors {
    limit: u32,
    read: BTreeMap<String, Cursor>,
}

#[derive(Clone, Copy)]
struct Cursor {
    instance: u64,
    seq: u64,
    unix_ms: i64,
}

impl Cursors {
    /// Nothing read; a service seen for the first time starts with its last `limit` events.
    pub(super) fn new(limit: u32) -> Self {
        Cursors { limit, read: BTreeMap::new() }
    }

    /// What is new in each of the services asked for.
    pub(super) fn next(
        &mut self,
        args: &Args,
        client: &Client,
    ) -> Result<Vec<ServiceEvents>, Failure> {
        let mut fresh = Vec::new();
        for summary in args.common.services(client)? {
            let cursor = self.read.get(&summary.service).copied();
            let from = cursor.map_or_else(String::new, |cursor| format!("&after={}", cursor.seq));
            let limit = if cursor.is_some() { 1_000 } else { self.limit };
            let path = format!("/v1/services/{}/events?limit={limit}{from}", summary.service);
            let Some(mut new) = client.get_if_there::<ServiceEvents>(&path)? else { continue };
            if let Some(old) = cursor
                && old.instance != new.instance
                && new.last_seq <= old.seq
            {
                // A new run that counts from the start: its numbers say nothing, its times do.
                let path = format!("/v1/services/{}/events?limit=1000", summary.service);
                let Some(again) = client.get_if_there::<ServiceEvents>(&path)? else { continue };
                new = again;
                new.events.retain(|event| event.unix_ms > old.unix_ms);
            }
            let before = cursor.map_or(i64::MIN, |cursor| cursor.unix_ms);
            let seq = new.events.last().map_or(new.last_seq, |event| event.seq);
            let unix_ms = new.events.last().map_or(before, |event| event.unix_ms);
            let cursor = Cursor { instance: new.instance, seq, unix_ms };
            self.read.insert(summary.service, cursor);
            fresh.push(new);
        }
        Ok(fresh)
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn times_are_local() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(local(1_795_228_097_120, &zone), "2026-11-21 04:28:17.120");
        assert_eq!(local(i64::MAX, &zone), "-");
    }
}
