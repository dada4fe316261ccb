//! `plimsoll nginx`: what NGINX needs to be steered.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_sink::{NginxPool, NginxServer, Sink, SocketAddress, nginx_snippet};
use plimsoll_terminal::fail;

use crate::config::{self, Service};
use crate::daemons::refused;

/// The weight until a plan comes.
const WEIGHT: u32 = 100;

/// What NGINX needs to be steered
#[derive(Debug, Subcommand)]
pub enum NginxCommand {
    Snippet(SnippetArgs),
}

/// Print the configuration that lets NGINX be steered without reloads, to be included in its `http`
#[derive(Args, Debug)]
pub struct SnippetArgs {
    /// The services of this configuration whose sink is nginx
    #[arg(long, value_name = "FILE", conflicts_with_all = ["upstream", "server", "socket"])]
    config: Option<PathBuf>,
    /// Without a configuration: the upstream's name, as in `proxy_pass http://NAME`
    #[arg(long, value_name = "NAME", required_unless_present = "config", requires = "server")]
    upstream: Option<String>,
    /// Its servers: a name of your choice and an IP address with its port; may be repeated
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = server, requires = "upstream")]
    server: Vec<(String, SocketAddr)>,
    /// Where Plimsoll is to reach it
    #[arg(long, value_name = "SOCKET", default_value = "/run/plimsoll/nginx.sock")]
    socket: SocketAddress,
    /// Pick by requests in flight, and not in turn
    #[arg(long)]
    leastconn: bool,
}

/// Runs a subcommand.
pub fn main(command: &NginxCommand) -> ExitCode {
    match command {
        NginxCommand::Snippet(args) => snippet(args),
    }
}

fn server(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, address) =
        text.split_once('=').ok_or("expected NAME=ADDRESS, such as s1=10.0.0.1:8080")?;
    let read = address.parse().ok().filter(|read: &SocketAddr| read.port() != 0);
    let address = read.ok_or_else(|| {
        format!(
            "expected an IP address and a port, found {address:?}: NGINX resolves no names here"
        )
    })?;
    Ok((name.to_owned(), address))
}

fn snippet(args: &SnippetArgs) -> ExitCode {
    let (socket, pools) = match &args.config {
        None => {
            let name = args.upstream.clone().unwrap_or_default();
            let servers = args.server.iter().cloned();
            let servers =
                servers.map(|(name, address)| NginxServer { name, address, weight: WEIGHT });
            let pool = NginxPool { name, leastconn: args.leastconn, servers: servers.collect() };
            (args.socket.clone(), vec![pool])
        }
        Some(file) => {
            let config = match config::load(file) {
                Ok(config) => config,
                Err(problems) => return refused(&problems),
            };
            match of_config(&config.services, args.leastconn) {
                Ok(found) => found,
                Err(why) => return fail(&format!("{}: {why}", file.display())),
            }
        }
    };
    let text = match nginx_snippet(&socket, &pools) {
        Ok(text) => text,
        Err(error) => return fail(&error.to_string()),
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write the answer: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The socket and the pools of the services that NGINX serves.
fn of_config(
    services: &[Service],
    leastconn: bool,
) -> Result<(SocketAddress, Vec<NginxPool>), String> {
    let mut sockets = BTreeSet::new();
    let mut pools = Vec::new();
    for service in services {
        let of_service = service.sink.value.iter().filter_map(|sink| match sink {
            Sink::Nginx(nginx) => Some(nginx),
            _ => None,
        });
        let of_service: Vec<_> = of_service.collect();
        let Some(nginx) = of_service.first() else { continue };
        sockets.extend(of_service.iter().map(|nginx| nginx.socket.clone()));
        let name = &service.name;
        if service.auto {
            return Err(format!(
                "service {name} has `backends: auto`, which asks NGINX for its servers, but the snippet is written before NGINX knows any: list them"
            ));
        }
        let mut servers = Vec::new();
        for backend in &service.backends {
            let address = backend.address.socket_addr().ok_or_else(|| {
                format!(
                    "service {name}: {} is {}: a balancer in Lua needs IP addresses",
                    backend.name, backend.address
                )
            })?;
            servers.push(NginxServer { name: backend.name.clone(), address, weight: WEIGHT });
        }
        pools.push(NginxPool { name: nginx.upstream.clone(), leastconn, servers });
    }
    let named: Vec<String> = sockets.iter().map(ToString::to_string).collect();
    let mut sockets = sockets.into_iter();
    match (sockets.next(), sockets.next()) {
        (Some(socket), None) => Ok((socket, pools)),
        (None, _) => Err("no service has a sink nginx".to_owned()),
        (Some(_), Some(_)) => Err(format!(
            "it has NGINXs at several sockets ({}): print the snippet of each by --socket, --upstream and --server",
            named.join(", ")
        )),
    }
}
