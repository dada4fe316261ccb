//! The `l4` section: from what was written to what is meant.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_cookie::Layout;
use plimsoll_l4::{
    AttachMode, Backend, BackendState, CookieConfig, Interface, L4Config, Limits, Mac, Policy,
    Uplink, Vip,
};

use crate::config::{self, ConfigError, Cursor};

/// Where things are pinned unless the configuration says otherwise.
pub const PIN_DIR: &str = "/sys/fs/bpf/plimsoll/l4";
const KEY_FILE: &str = "/var/lib/plimsoll/l4.key";
const DRAIN: Duration = Duration::from_secs(24 * 3600);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Reads the configuration in a file.
///
/// # Errors
/// Everything that is wrong with it, in order of place.
pub fn load(path: &Path) -> Result<L4Config, Vec<ConfigError>> {
    config::load_as(path, "l4", "a mapping with interfaces and vips", document)
}

fn document(cursor: &Cursor<'_>) -> Option<L4Config> {
    let fields = cursor.fields(&["l4"])?;
    fields.required("l4", "a mapping with interfaces and vips", section)
}

/// Reads the section; its `agent` is checked, and read by the agent alone.
pub fn section(cursor: &Cursor<'_>) -> Option<L4Config> {
    let fields = cursor.fields(&[
        "interfaces",
        "vips",
        "cookie",
        "uplink",
        "limits",
        "pin_dir",
        "drain",
        "agent",
    ])?;
    let interfaces = fields.required("interfaces", "a list such as [ { name: eth0 } ]", |c| {
        all(c, "a list of at least one interface", interface)
    });
    let limits = fields.or("limits", Limits::default(), limits);
    let cookie = match fields.get("cookie") {
        Some(cursor) => cookie(cursor),
        None => Some(CookieConfig {
            layout: Layout::default(),
            key_file: PathBuf::from(KEY_FILE),
            rotate: None,
        }),
    };
    let vips = fields.required("vips", "a list of at least one service", |c| {
        all(c, "a list of at least one service", vip)
    });
    let uplink = fields.optional("uplink", uplink);
    let pin_dir =
        fields.or("pin_dir", PathBuf::from(PIN_DIR), |c| c.text("a directory").map(PathBuf::from));
    let drain = fields.or("drain", DRAIN, |c| c.duration(Duration::from_secs(1)..=LONGEST));
    fields.or("agent", super::agent::Section::default(), super::agent::section)?;
    let config = L4Config {
        interfaces: interfaces?,
        vips: vips?,
        cookie: cookie?,
        uplink: uplink?,
        limits: limits?,
        pin_dir: pin_dir?,
        drain: drain?,
    };
    across(cursor, fields.get("vips")?, &config)?;
    Some(config)
}

/// What must hold across the whole.
fn across(section: &Cursor<'_>, vips: &Cursor<'_>, config: &L4Config) -> Option<()> {
    let mut good = Some(());
    let mut names = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for (vip, cursor) in config.vips.iter().zip(vips.items("a list")?) {
        if names.insert(vip.name.clone(), cursor.at()).is_some() {
            good = cursor.expected("a name that no other service has");
        }
        if let Some(first) = addresses.insert(vip.address, cursor.at()) {
            good = cursor.expected(format!(
                "an address that no other service has ({} is taken on line {})",
                vip.address, first.line
            ));
        }
        if vip.backends.len() as u32 > config.limits.backends {
            good = cursor.expected(format!(
                "at most l4.limits.backends = {} servers, found {}",
                config.limits.backends,
                vip.backends.len()
            ));
        }
        let highest = config.limits.stride() - 1;
        for backend in &vip.backends {
            if backend.id.is_some_and(|id| u32::from(id) > highest) {
                good = cursor.expected(format!(
                    "ids up to {highest}, as l4.limits.backends has it; {} has another",
                    backend.name
                ));
            }
        }
    }
    if config.vips.len() as u32 > config.limits.vips {
        good = vips.expected(format!("at most l4.limits.vips = {} services", config.limits.vips));
    }
    let most = u32::from(config.cookie.layout.max_id().0);
    if config.limits.stride() - 1 > most {
        good = section.expected(format!(
            "l4.limits.backends of at most {most}, as cookies with {} version bits tell apart",
            config.cookie.layout.version_bits()
        ));
    }
    if let Some(uplink) = &config.uplink
        && config.interfaces.iter().all(|interface| interface.name != uplink.interface)
    {
        good = section.expected("l4.uplink.interface to be one of l4.interfaces");
    }
    good
}

/// A list of at least one thing, every one read so that all problems are told.
fn all<T>(
    cursor: &Cursor<'_>,
    what: &str,
    read: impl Fn(&Cursor<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = cursor.items(what)?;
    if items.is_empty() {
        return cursor.expected(what);
    }
    let read: Vec<Option<T>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

fn interface(cursor: &Cursor<'_>) -> Option<Interface> {
    let fields = cursor.fields(&["name", "mode"])?;
    let name = fields.required("name", "an interface's name", |c| {
        // IFNAMSIZ, its ending zero included; a slash would lead out of the pins' directory.
        c.text_if("an interface's name of up to 15 letters", |text| {
            (1..16).contains(&text.len())
                && !text.contains(['/', ' '])
                && text != "."
                && text != ".."
        })
    });
    let mode = fields.or("mode", AttachMode::Native, |c| {
        c.one_of(&[("native", AttachMode::Native), ("generic", AttachMode::Generic)])
    });
    Some(Interface { name: name?.to_owned(), mode: mode? })
}

fn name<'a>(cursor: &Cursor<'a>) -> Option<&'a str> {
    cursor.text_if("a name of 1 to 63 letters", |text| {
        (1..64).contains(&text.len()) && !text.contains(char::is_control)
    })
}

fn vip(cursor: &Cursor<'_>) -> Option<Vip> {
    let fields = cursor.fields(&[
        "name",
        "address",
        "protocol",
        "mode",
        "policy",
        "forwarding",
        "backends",
    ])?;
    let name = fields.required("name", "the service's name", name);
    let address = fields.required("address", "an address such as \"10.0.9.9:80\"", |c| {
        let text = c.text("an address and port such as \"10.0.9.9:80\" or \"[fd00::9]:80\"")?;
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Some(address),
            _ => c.expected("an IP address and a port such as \"10.0.9.9:80\" or \"[fd00::9]:80\""),
        }
    });
    let protocol = fields.or("protocol", (), |c| c.one_of(&[("tcp", ())]));
    let mode = fields.or("mode", (), |c| c.one_of(&[("stateless", ())]));
    let forwarding = fields.or("forwarding", (), |c| c.one_of(&[("direct", ())]));
    let policy = fields.or("policy", Policy::RoundRobin, |c| {
        c.one_of(&[
            ("round_robin", Policy::RoundRobin),
            ("weighted_round_robin", Policy::WeightedRoundRobin),
            ("power_of_two", Policy::PowerOfTwo),
            ("least_connections", Policy::LeastConnections),
            ("hash", Policy::Hash),
            ("maglev", Policy::Maglev),
            ("awrr", Policy::Awrr),
        ])
    });
    let backends = fields.required("backends", "a list of at least one server", backends);
    protocol.and(mode).and(forwarding)?;
    let (name, address, backends) = (name?.to_owned(), address?, backends?);
    for backend in &backends {
        if backend.address.is_ipv4() != address.is_ipv4() {
            return cursor.expected(format!(
                "servers of the family of {address}; {} has {}",
                backend.name, backend.address
            ));
        }
    }
    Some(Vip { name, address, policy: policy?, backends })
}

fn backends(cursor: &Cursor<'_>) -> Option<Vec<Backend>> {
    let backends = all(cursor, "a list of at least one server", backend)?;
    let mut good = Some(());
    let mut names = BTreeMap::new();
    let mut ids = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for (backend, item) in backends.iter().zip(cursor.items("a list")?) {
        let line = item.at().line;
        if let Some(first) = names.insert(&backend.name, line) {
            good =
                item.expected(format!("a name of its own ({} is on line {first})", backend.name));
        }
        if let Some(first) = addresses.insert(backend.address, line) {
            good = item.expected(format!(
                "an address of its own ({} is on line {first})",
                backend.address
            ));
        }
        if let Some(id) = backend.id
            && let Some(first) = ids.insert(id, line)
        {
            good = item.expected(format!("an id of its own ({id} is on line {first})"));
        }
    }
    good.map(|()| backends)
}

fn backend(cursor: &Cursor<'_>) -> Option<Backend> {
    let fields = cursor.fields(&["name", "address", "mac", "weight", "id", "state", "agent"])?;
    let name = fields.required("name", "the server's name", name);
    let address = fields.required("address", "the server's IP address", ip);
    let mac = fields.optional("mac", mac);
    let weight = fields.or("weight", 1, |c| c.integer(0..=65_535));
    let id = fields.optional("id", |c| c.integer(1..=16_383));
    let agent = fields.or("agent", false, Cursor::boolean);
    let state = fields.or("state", BackendState::Up, |c| {
        c.one_of(&[
            ("up", BackendState::Up),
            ("draining", BackendState::Draining),
            ("down", BackendState::Down),
        ])
    });
    Some(Backend {
        name: name?.to_owned(),
        address: address?,
        mac: mac?,
        weight: weight? as u16,
        id: id?.map(|id| id as u16),
        state: state?,
        agent: agent?,
    })
}

fn ip(cursor: &Cursor<'_>) -> Option<IpAddr> {
    let what = "an IP address such as \"10.0.2.2\"";
    match cursor.scalar(what)?.parse() {
        Ok(address) => Some(address),
        Err(_) => cursor.expected(what),
    }
}

fn mac(cursor: &Cursor<'_>) -> Option<Mac> {
    let what = "a MAC address such as \"02:00:00:00:02:02\", of one machine";
    let bytes: Vec<u8> = cursor
        .scalar(what)?
        .split(':')
        .filter_map(|two| (two.len() == 2).then(|| u8::from_str_radix(two, 16).ok()).flatten())
        .collect();
    match Mac::try_from(bytes) {
        // The lowest bit of the first byte marks groups.
        Ok(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Some(mac),
        _ => cursor.expected(what),
    }
}

fn cookie(cursor: &Cursor<'_>) -> Option<CookieConfig> {
    let fields = cursor.fields(&["version_bits", "key_file", "rotate"])?;
    let layout = fields
        .or("version_bits", Layout::default(), |c| Layout::new(c.integer(1..=8)? as u32).ok());
    let key_file =
        fields.or("key_file", PathBuf::from(KEY_FILE), |c| c.text("a file").map(PathBuf::from));
    let layout = layout?;
    // A salt must outlive every connection that was silent since it was in force.
    let shortest = Duration::from_millis(2 * layout.silence_limit_ms());
    let rotate = fields.optional("rotate", |c| c.duration(shortest..=LONGEST));
    Some(CookieConfig { layout, key_file: key_file?, rotate: rotate? })
}

fn uplink(cursor: &Cursor<'_>) -> Option<Uplink> {
    let fields = cursor.fields(&["interface", "gateway", "mac"])?;
    let interface = fields.required("interface", "an interface's name", |c| c.text("a name"));
    let gateway = fields.optional("gateway", ip);
    let mac = fields.optional("mac", mac);
    let uplink = Uplink { interface: interface?.to_owned(), gateway: gateway?, mac: mac? };
    if uplink.gateway.is_none() && uplink.mac.is_none() {
        return cursor.expected("a gateway or a mac");
    }
    Some(uplink)
}

fn limits(cursor: &Cursor<'_>) -> Option<Limits> {
    let fields = cursor.fields(&["vips", "backends", "fragments"])?;
    let default = Limits::default();
    let vips = fields.or("vips", u64::from(default.vips), |c| c.integer(1..=256));
    let backends = fields.or("backends", u64::from(default.backends), |c| c.integer(1..=16_383));
    let fragments =
        fields.or("fragments", u64::from(default.fragments), |c| c.integer(1..=1_000_000));
    Some(Limits { vips: vips? as u32, backends: backends? as u32, fragments: fragments? as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
l4:
  interfaces: [ { name: eth0, mode: native } ]
  vips:
    - name: shop
      address: "10.0.9.9:80"
      protocol: tcp
      mode: stateless
      policy: round_robin
      forwarding: direct
      backends: [ { name: s1, address: "10.0.2.2", mac: "02:00:00:00:02:02" } ]
"#;

    fn read(text: &str) -> Result<L4Config, Vec<String>> {
        let read = config::parse_as("f.yaml", text, "l4", "a mapping", document);
        read.map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_shortest_configuration_is_read_with_its_defaults() {
        let config = read(GOOD).expect("good");
        assert_eq!(config.vips[0].backends[0].mac, Some([2, 0, 0, 0, 2, 2]));
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.pin_dir, PathBuf::from(PIN_DIR));
        assert_eq!(config.cookie.layout.version_bits(), 4);
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_place() {
        let text = GOOD
            .replace("mode: native", "mode: fast")
            .replace("tcp", "sctp")
            .replace("10.0.9.9:80", "10.0.9.9")
            .replace("02:00:00:00:02:02", "01:00:00:00:02:02");
        let errors = read(&text).expect_err("four problems");
        let expected = [
            "f.yaml:3:37: l4.interfaces[0].mode: expected native or generic",
            "f.yaml:6:16: l4.vips[0].address: expected an IP address and a port",
            "f.yaml:7:17: l4.vips[0].protocol: expected tcp",
            "f.yaml:11:57: l4.vips[0].backends[0].mac: expected a MAC address",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, start) in errors.iter().zip(expected) {
            assert!(error.starts_with(start), "{errors:#?}");
        }
    }

    #[test]
    fn what_is_given_twice_or_does_not_fit_together_is_refused() {
        let second = "\n    - { name: b, address: \"10.0.9.9:80\", backends: [ { name: s, address: 10.0.2.3 } ] }\n";
        let cases = [
            (
                format!("{GOOD}{}", second.trim_start_matches('\n')),
                "an address that no other service has",
            ),
            (
                GOOD.replace("02:02\" }", "02:02\" }, { name: s1, address: 10.0.2.3 }"),
                "a name of its own",
            ),
            (
                GOOD.replace("02:02\" }", "02:02\" }, { name: s2, address: 10.0.2.2 }"),
                "an address of its own",
            ),
            (GOOD.replace("\"10.0.2.2\"", "\"fd00::2\""), "servers of the family"),
            (format!("{GOOD}  limits: {{ backends: 5000 }}\n"), "at most 2047"),
            (format!("{GOOD}  uplink: {{ interface: eth7, gateway: 10.0.0.1 }}\n"), "l4.uplink"),
            (format!("{GOOD}  cookie: {{ rotate: 60s }}\n"), "a time from 1048.576s"),
        ];
        for (text, says) in cases {
            let errors = read(&text).expect_err(says);
            assert!(errors.iter().any(|error| error.contains(says)), "{says}: {errors:#?}");
        }
    }
}
