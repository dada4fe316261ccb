//! How a server's agent finds itself in the balancers' configuration.

use std::net::IpAddr;

use plimsoll_l4::{AgentConfig, AgentSection, L4Config, agent_dir, doctor, network};

/// What the agent of this machine is to do.
///
/// # Errors
/// In words, when the machine is no server of the configuration.
pub fn of_this_machine(l4: &L4Config, own: &AgentSection) -> Result<AgentConfig, String> {
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
