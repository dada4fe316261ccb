//! `l4.agent`: what a server's agent needs beside the balancers' configuration, and how it finds itself
//! in that.

use std::net::{IpAddr, SocketAddr};

use plimsoll_config::Cursor;
use plimsoll_l4::{AgentConfig, L4Config, agent_dir, doctor, network};

/// As written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Where packets come in and replies leave; empty: the interfaces with the backends' addresses.
    pub interfaces: Vec<String>,
    /// Where `GET /v1/load` is answered; none: nowhere.
    pub listen: Option<SocketAddr>,
}

/// Reads `l4.agent`.
pub fn section(cursor: &Cursor<'_>) -> Option<Section> {
    let fields = cursor.fields(&["interfaces", "listen"])?;
    let interfaces = fields.or("interfaces", Vec::new(), |c| {
        let items = c.items("a list of interfaces such as [ eth0 ]")?;
        let name = |item: &Cursor<'_>| item.text("an interface's name").map(str::to_owned);
        items.iter().map(name).collect()
    });
    let listen = fields.optional("listen", Cursor::listen);
    Some(Section { interfaces: interfaces?, listen: listen? })
}

/// What the agent of this machine is to do.
///
/// # Errors
/// In words, when the machine is no server of the configuration.
pub fn of_this_machine(l4: &L4Config, own: &Section) -> Result<AgentConfig, String> {
    let local = doctor::local_addresses().map_err(|error| format!("netlink: {error}"))?;
    let interfaces = match own.interfaces.is_empty() {
        true => with_backends(l4, &local)?,
        false => own.interfaces.clone(),
    };
    AgentConfig::of(l4, &local, interfaces, agent_dir(l4)).map_err(|error| error.to_string())
}

fn with_backends(l4: &L4Config, local: &[IpAddr]) -> Result<Vec<String>, String> {
    let links = network::links().map_err(|error| format!("netlink: {error}"))?;
    let mut names = Vec::new();
    for backend in l4.vips.iter().flat_map(|vip| &vip.backends) {
        if !local.contains(&backend.address) {
            continue;
        }
        let index = doctor::interface_of(backend.address).map_err(|error| error.to_string())?;
        let link = links.iter().find(|link| Some(link.index) == index);
        names.extend(link.map(|link| link.name.clone()).filter(|name| !names.contains(name)));
    }
    Ok(names)
}
