//! The configuration that NGINX needs: one file, to be included in `http`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use plimsoll_model::BackendId;

use super::check_name;
use crate::SinkError;
use crate::haproxy::SocketAddress;
use crate::servers::Roster;

/// The Lua balancer.
const LUA: &str = include_str!("plimsoll.lua");
/// Counters of a server take about so many bytes for each worker, and its part of the weights a few …
const COUNTERS: usize = 600;
/// … and so many workers are provided for, with those of a reload that still have requests. Memory is taken as it is
/// written: a size costs nothing.
const WORKERS: usize = 64;
/// The least size of the dictionary, in MiB. It is a power of two: a reload that finds another size begins with an empty
/// one, and one more server shall not do that.
const LEAST_MIB: usize = 4;

/// An upstream to be steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxPool {
    /// What `proxy_pass http://NAME` calls it.
    pub name: String,
    /// By requests in flight, and not in turn.
    pub leastconn: bool,
    /// Its servers.
    pub servers: Vec<NginxServer>,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxServer {
    /// By which Plimsoll knows it.
    pub name: String,
    /// NGINX resolves no names here: a balancer in Lua takes numbers.
    pub address: SocketAddr,
    /// Its weight until a plan comes, 0…1000.
    pub weight: u32,
}

/// The configuration, as a text.
///
/// # Errors
/// [`SinkError::InvalidName`] for names that cannot stand in it, or that come twice.
pub fn nginx_snippet(socket: &SocketAddress, pools: &[NginxPool]) -> Result<String, SinkError> {
    let listen = match socket {
        SocketAddress::Unix(path) => format!("unix:{}", path.display()),
        SocketAddress::Tcp(address) => address.clone(),
    };
    if let Some(odd) =
        listen.chars().find(|c| c.is_whitespace() || c.is_control() || ";{}\"'\\$".contains(*c))
    {
        return Err(SinkError::InvalidName {
            name: listen,
            what: "socket of NGINX",
            reason: format!("{odd:?} cannot stand in its configuration"),
        });
    }
    let servers: usize = pools.iter().map(|pool| pool.servers.len()).sum();
    let mib = (servers * WORKERS * COUNTERS).div_ceil(1 << 20).max(LEAST_MIB).next_power_of_two();
    let mut text = format!(
        "# Written by `plimsoll nginx snippet`. Include it in `http {{ … }}`, in the place of the upstreams of the same\n\
         # names. It needs the Lua module (Debian: libnginx-mod-http-lua). Weights change over the socket below, without\n\
         # a reload, and outlive one; after a restart they are asserted again.\n\
         #\n\
         # NGINX takes one init_by_lua_block: if you have your own, put the lines of this one into it.\n\
         # A location with a log_by_lua_block of its own must call plimsoll.log() in it.\n\n\
         lua_shared_dict plimsoll {mib}m;\n\n\
         init_by_lua_block {{\n\
         package.preload[\"plimsoll\"] = function()\n{LUA}end\n\
         plimsoll = require \"plimsoll\"\n"
    );
    for pool in pools {
        check_name("upstream's name", &pool.name)?;
        if pool.name.contains(':') {
            return Err(SinkError::InvalidName {
                name: pool.name.clone(),
                what: "upstream's name",
                reason: "NGINX takes what follows a `:` in `proxy_pass http://NAME` for a port"
                    .to_owned(),
            });
        }
        let method = if pool.leastconn { "leastconn" } else { "roundrobin" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "plimsoll.pool(\"{}\", \"{method}\", {{", pool.name);
        let names = (0..).map(BackendId).zip(pool.servers.iter().map(|server| server.name.clone()));
        Roster::new(names.collect(), check_name)?;
        for NginxServer { name, address, weight } in &pool.servers {
            let _ = writeln!(text, "    {{ \"{name}\", \"{address}\", {weight} }},");
        }
        text.push_str("})\n");
    }
    text.push_str("}\n");
    for pool in pools {
        let name = &pool.name;
        let _ = write!(
            text,
            "\nupstream {name} {{\n    server 0.0.0.1;    # never used: the balancer below picks\n    \
             balancer_by_lua_block {{ plimsoll.balance(\"{name}\") }}\n    keepalive 64;    # wants `proxy_http_version \
             1.1; proxy_set_header Connection \"\";` beside proxy_pass\n}}\n"
        );
    }
    let _ = write!(
        text,
        "\n# Gives every request one id for all of its phases.\nmap $request_id $plimsoll_request {{ default $request_id; }}\n\
         log_by_lua_block {{ plimsoll.log() }}\n\n\
         # Who may write to this socket sets the weights: keep its directory to NGINX and Plimsoll. A file that a killed\n\
         # NGINX has left must be removed before the next start (systemd: ExecStartPre=rm -f …).\n\
         server {{\n    listen {listen};\n    access_log off;\n    keepalive_requests 1000000;\n    \
         client_max_body_size 4m;\n    client_body_buffer_size 4m;\n    location / {{ content_by_lua_block {{ \
         plimsoll.control() }} }}\n}}\n"
    );
    Ok(text)
}
