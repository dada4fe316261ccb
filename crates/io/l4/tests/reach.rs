//! How clients' packets reach a balancer: what the doctor says of it, beside what the kernel does.

mod rig;

use plimsoll_l4::doctor::{Finding, Level, examine};
use plimsoll_l4::{L4Config, Policy};
use rig::privileged;
use rig::service::Service;

/// A service whose clients ask their own link for the VIP.
fn on_one_link(v6: bool) -> Service {
    let service = Service::new(1, 2, v6);
    let family = if v6 { "ipv6" } else { "ipv4" };
    // The asking kernel gives up soon, and one that answers for another does not wait first.
    service.net.exec("cli", &format!("sysctl -qw net.{family}.neigh.c0.retrans_time_ms=100"));
    service.net.exec("lb", &format!("sysctl -qw net.{family}.neigh.lbc.proxy_delay=0"));
    service.net.exec("cli", &format!("ip route add {} dev c0", service.vip.ip()));
    service
}

fn look(service: &Service, config: &L4Config) -> Vec<Finding> {
    service.net.inside("lb", || examine(Some(config))).expect("enters")
}

fn finding<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    findings.iter().find(|one| one.check == check).expect("looked at")
}

/// How it is judged that packets get here, and where those go that come past the program.
fn levels(service: &Service, config: &L4Config) -> (Level, Level) {
    let found = look(service, config);
    (finding(&found, "vip_reached").level, finding(&found, "vip_route").level)
}

/// Whether clients reach the VIP, as if they had never asked for it.
fn is_answered(service: &Service) -> bool {
    service.net.exec("cli", "ip neigh flush dev c0");
    service.connect(1).pop().expect("one").is_ok()
}

/// Each change on the balancer, how both are judged then, and whether the VIP is answered for.
fn follow(service: &Service, config: &L4Config, steps: &[(&str, Level, Level, bool)]) {
    for (change, reached, route, answered) in steps {
        service.net.exec("lb", change);
        let found = look(service, config);
        assert_eq!(finding(&found, "vip_reached").level, *reached, "{change}: {found:#?}");
        assert_eq!(finding(&found, "vip_route").level, *route, "{change}: {found:#?}");
        assert_eq!(is_answered(service), *answered, "{change}");
    }
}

#[test]
fn a_vip_answered_for_on_the_clients_link_is_distinguished_from_one_that_is_not() {
    if !privileged() {
        return;
    }
    let service = on_one_link(false);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    for interface in ["all", "lbc", "lb1"] {
        service.net.exec("lb", &format!("sysctl -qw net.ipv4.conf.{interface}.rp_filter=0"));
    }
    assert_eq!(levels(&service, &config), (Level::Ok, Level::Ok), "nothing has run here");
    let balancer = service.balance(&config);
    service.net.leave();
    let (ok, warn) = (Level::Ok, Level::Warn);
    follow(
        &service,
        &config,
        &[
            ("true", warn, ok, false),
            ("ip route add default via 10.0.1.2", warn, warn, false),
            ("ip neigh add proxy 10.0.9.9 dev lbc", warn, warn, false),
            ("ip route add unreachable 10.0.9.9", warn, ok, false),
            ("sysctl -qw net.ipv4.conf.lbc.rp_filter=2", warn, warn, false),
            ("sysctl -qw net.ipv4.conf.lbc.rp_filter=0", warn, ok, false),
            ("ip route replace 10.0.9.9 dev lo", ok, ok, true),
            ("sysctl -qw net.ipv4.conf.lbc.forwarding=0", warn, ok, false),
            ("sysctl -qw net.ipv4.conf.lbc.forwarding=1", ok, ok, true),
            // By another interface than the one that is asked; what comes past goes on there.
            ("ip route replace 10.0.9.9 via 10.0.2.2", ok, warn, true),
        ],
    );
    let mut elsewhere = config.clone();
    elsewhere.interfaces.retain(|one| one.name != "lbc");
    assert_eq!(levels(&service, &elsewhere).0, warn, "no program where it is asked for");

    // Without the entry, the packets that came are what shows that a router knows.
    service.net.exec("lb", "ip neigh del proxy 10.0.9.9 dev lbc && ip route del 10.0.9.9");
    let found = look(&service, &config);
    let reached = finding(&found, "vip_reached");
    assert!(reached.level == ok && reached.found.contains("packets came"), "{reached:?}");
    assert_eq!(finding(&found, "vip_route").level, warn, "the default route leads to a router");
    for setting in ["lbc", "lb1"] {
        service.net.exec("lb", &format!("sysctl -qw net.ipv4.conf.{setting}.forwarding=0"));
    }
    assert_eq!(levels(&service, &config).1, ok, "nothing is forwarded");
    service.net.exec("lb", "sysctl -qw net.ipv4.ip_forward=1");
    for route in ["unreachable 10.0.9.9", "blackhole 10.0.9.9", "prohibit 10.0.9.9"] {
        service.net.exec("lb", &format!("ip route replace {route}"));
        assert_eq!(levels(&service, &config).1, ok, "{route}");
        service.net.exec("lb", &format!("ip route del {route}"));
    }
    service.net.exec("lb", "ip addr add 10.0.9.9/32 dev lo");
    let found = look(&service, &config);
    assert_eq!(finding(&found, "vip_reached").found, "its own address, for which it answers");
    assert!(found.iter().all(|one| one.check != "vip_route"), "all of it is the kernel's own");
    drop(balancer);
}

#[test]
fn a_vip_of_ipv6_is_answered_for_where_proxy_ndp_is_on() {
    if !privileged() {
        return;
    }
    let service = on_one_link(true);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    let balancer = service.balance(&config);
    service.net.leave();
    let (ok, warn) = (Level::Ok, Level::Warn);
    follow(
        &service,
        &config,
        &[
            ("ip neigh add proxy fd00:9::9 dev lbc", warn, ok, false),
            ("sysctl -qw net.ipv6.conf.lbc.proxy_ndp=1", ok, ok, true),
            ("ip route add default via fd00:1::2", ok, warn, true),
            ("ip route add unreachable fd00:9::9", ok, ok, true),
            ("ip route replace fd00:9::9 dev lo", ok, ok, true),
            ("sysctl -qw net.ipv6.conf.lbc.forwarding=0", warn, ok, false),
        ],
    );
    drop(balancer);
}

#[test]
fn an_interface_that_sends_nothing_ends_what_comes_past_and_is_answered_for() {
    if !privileged() {
        return;
    }
    let service = on_one_link(false);
    let any = "ip link add sink type dummy || ip link add sink type ifb || echo none";
    if service.net.exec("lb", any).stdout.starts_with(b"none") {
        eprintln!("skipped: this kernel has neither dummy nor ifb");
        return;
    }
    let config = service.config(Policy::RoundRobin, &["s1"]);
    let balancer = service.balance(&config);
    service.net.leave();
    let set_up = "ip link set sink up && ip route add 10.0.9.9 dev sink && ip neigh add proxy \
                  10.0.9.9 dev lbc";
    follow(&service, &config, &[(set_up, Level::Ok, Level::Ok, true)]);
    drop(balancer);
}
