//! `plimsoll l4 status`: what the kernel counted. Needs no daemon.

use std::process::ExitCode;

use plimsoll_l4::{MemberState, RepliesBy, RepliesStatus, SetBy, Status, WeightsStatus};
use plimsoll_terminal::Format;

use super::Pinned;

/// Show packets, bytes and connections by service and server
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pinned: Pinned,
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Asks, and prints.
pub fn run(args: &StatusArgs) -> ExitCode {
    let dir = match args.pinned.dir() {
        Ok(dir) => dir,
        Err(code) => return code,
    };
    let status = match plimsoll_l4::status(&dir) {
        Ok(status) => status,
        Err(error) => return plimsoll_terminal::fail(&error.to_string()),
    };
    match args.output {
        Format::Json => match serde_json::to_string_pretty(&status) {
            Ok(text) => plimsoll_terminal::answer(&format!("{text}\n")),
            Err(error) => plimsoll_terminal::fail(&error.to_string()),
        },
        Format::Table => plimsoll_terminal::answer(&table(&status)),
    }
}

/// What set the weights, in words.
fn set_by(weights: &WeightsStatus) -> String {
    let at = || {
        let ms = i64::try_from(weights.unix_ms.unwrap_or(0)).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
        at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
    };
    match weights.set_by {
        SetBy::Configuration => "as configured".to_owned(),
        SetBy::Controller => {
            let (who, epoch) = (&weights.who, weights.epoch.unwrap_or(0));
            format!("set by {who}, plan {epoch}, {}", at())
        }
        SetBy::Load => format!("set by the servers' load, {}", at()),
    }
}

/// Where replies go, in words.
fn way(replies: &RepliesStatus) -> String {
    let remembered = if replies.remembered { ", once a second for each client" } else { "" };
    if let Some(why) = replies.why {
        return format!("the kernel's routes are asked{remembered}: {}", why.words());
    }
    let interface = replies.interface.as_deref().unwrap_or("?");
    let mac = replies.mac.as_deref().unwrap_or("?");
    let via = match (replies.gateway, replies.by) {
        (Some(gateway), RepliesBy::DefaultRoute) => format!("kernel's default route via {gateway}"),
        (Some(gateway), _) => format!("configured uplink via {gateway}"),
        (None, _) => "configured uplink".to_owned(),
    };
    let mut text = format!("{via} dev {interface} ({mac})");
    if !replies.asked_for.is_empty() {
        let asked = replies.asked_for.iter().map(ToString::to_string).collect::<Vec<_>>();
        text += &format!("; the kernel's routes are asked for {}{remembered}", asked.join(", "));
    }
    text
}

fn table(status: &Status) -> String {
    let mut text = format!("attached to {}\n", status.interfaces.join(", "));
    if !status.missing.is_empty() {
        let missing = status.missing.join(", ");
        text += &format!(
            "missing from {missing}: the interface is gone, or the program was taken off\n"
        );
    }
    for one in &status.replies {
        text += &format!("replies by {}: {}\n", one.family, way(one));
    }
    for vip in &status.vips {
        let address = vip.address.map_or("no longer configured".to_owned(), |at| at.to_string());
        text += &format!("\n{} ({address})\n", vip.name);
        text += &format!("  weights {}\n", set_by(&vip.weights));
        text += &format!(
            "  {:<20} {:>5} {:<5} {:>6} {:>10} {:>10} {:>14} {:>14} {:>16} {:>16}\n",
            "backend",
            "id",
            "state",
            "weight",
            "new",
            "open",
            "packets in",
            "packets out",
            "bytes in",
            "bytes out"
        );
        for one in &vip.backends {
            let state = match one.state {
                MemberState::Live => "live",
                MemberState::Gone => "gone",
                MemberState::Lost => "lost",
                MemberState::Unused => "-",
            };
            text += &format!(
                "  {:<20} {:>5} {state:<5} {:>6} {:>10} {:>10} {:>14} {:>14} {:>16} {:>16}\n",
                one.name,
                one.id,
                one.weight,
                one.new_connections,
                one.open_connections,
                one.packets_in,
                one.packets_out,
                one.bytes_in,
                one.bytes_out
            );
        }
        for one in vip.backends.iter().filter(|one| one.part < 1.0) {
            let percent = one.part * 100.0;
            text +=
                &format!("  {} is in slow start: {percent:.0} % of its weight counts\n", one.name);
        }
        for one in vip.backends.iter().filter(|one| one.load.is_some() || one.load_failures > 0) {
            let load = one.load.map_or("not known".to_owned(), |load| format!("{load:.2}"));
            let (name, failures) = (&one.name, one.load_failures);
            text += &format!("  load of {name}: {load} ({failures} askings failed)\n");
        }
        if vip.routes_asked > 0 {
            text += &format!("  replies for which routes were asked: {}\n", vip.routes_asked);
        }
        for (reason, count) in vip.fallbacks.iter().filter(|(_, count)| **count > 0) {
            text += &format!("  {reason}: {count}\n");
        }
    }
    for (reason, count) in status.stray.iter().filter(|(_, count)| **count > 0) {
        text += &format!("{reason}: {count}\n");
    }
    text
}
