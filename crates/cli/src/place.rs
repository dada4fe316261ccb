//! A balancer on the command line: commands that need no file are given its socket.

use std::path::PathBuf;

use clap::Args;
use plimsoll_sink::{
    HaproxyConfig, L4SinkConfig, NginxConfig, ProxySinkConfig, Sink, SocketAddress,
};

/// Which balancer, and which of its pools.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "balancer", multiple = false)]
pub struct PlaceArgs {
    /// A running HAProxy, by its admin socket: a path, or host:port
    #[arg(long, value_name = "SOCKET", group = "balancer")]
    pub haproxy: Option<SocketAddress>,
    /// A running NGINX, by the socket of its Lua balancer (see `plimsoll nginx snippet`)
    #[arg(long, value_name = "SOCKET", group = "balancer")]
    pub nginx: Option<SocketAddress>,
    /// A running layer-4 balancer of Plimsoll's own, by its l4.socket
    #[arg(long, value_name = "SOCKET", group = "balancer")]
    pub l4: Option<PathBuf>,
    /// A running layer-7 proxy of Plimsoll's own, by its proxy.socket
    #[arg(long, value_name = "SOCKET", group = "balancer")]
    pub proxy: Option<PathBuf>,
}

/// The arguments of [`PlaceArgs`], for groups that require one of them: a group cannot name another one.
pub const FLAGS: [&str; 4] = ["haproxy", "nginx", "l4", "proxy"];

/// Which of a balancer's pools.
#[derive(Args, Clone, Debug, Default)]
pub struct OnlyArgs {
    /// Only this pool of the balancer (HAProxy's backend, NGINX's upstream, a layer-4 service, the proxy's pool); may be repeated
    #[arg(long, value_name = "NAME", requires = "balancer")]
    pub backend: Vec<String>,
}

impl PlaceArgs {
    /// The balancer as a sink without a pool; none where none was named.
    pub fn sink(&self) -> Option<Sink> {
        let haproxy = self.haproxy.clone().map(|at| Sink::Haproxy(HaproxyConfig::new(at, "")));
        let l4 = || self.l4.clone().map(|at| Sink::L4(L4SinkConfig::new(at, "")));
        let proxy = || self.proxy.clone().map(|at| Sink::Proxy(ProxySinkConfig::new(at, "")));
        let nginx = || self.nginx.clone().map(|at| Sink::Nginx(NginxConfig::new(at, "")));
        haproxy.or_else(nginx).or_else(l4).or_else(proxy)
    }
}
