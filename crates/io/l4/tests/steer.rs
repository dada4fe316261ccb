//! Weights that a controller sets, and weights that follow the servers' load.

mod rig;

use plimsoll_l4::{
    BackendState, Balancer, L4Config, Load, Policy, SetBy, Status, Told, VipStatus, status,
};
use rig::privileged;
use rig::service::Service;

fn all(s1: u16, s2: u16) -> Vec<(String, u16)> {
    vec![("s1".to_owned(), s1), ("s2".to_owned(), s2)]
}

fn seen(service: &Service) -> VipStatus {
    let Status { mut vips, .. } = status(&service.net.pins()).expect("status");
    vips.remove(0)
}

/// Of so many new connections, how many went to s1.
fn to_s1(service: &Service, count: usize) -> usize {
    let opened = service.connect(count).into_iter().map(|one| one.expect("connects"));
    opened.filter(|one| one.server == "s1").count()
}

/// Whether so many of the new connections went to s1. Each CPU goes round by itself: a round that is not
/// over is off by one.
fn near(count: usize, expected: usize) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(count.abs_diff(expected) <= cpus, "{count}, expected {expected}");
}

fn weights(balancer: &mut Balancer) -> Vec<u16> {
    let reading = balancer.reading("shop").expect("configured");
    reading.servers.iter().map(|server| server.weight).collect()
}

fn steered(policy: Policy) -> (Service, L4Config) {
    let service = Service::new(2, 2, false);
    let config = service.config(policy, &["s1", "s2"]);
    (service, config)
}

#[test]
fn a_controllers_weights_outlive_reloads_and_daemons_until_they_are_given_back() {
    if !privileged() {
        return;
    }
    let (service, mut config) = steered(Policy::WeightedRoundRobin);
    let mut balancer = service.balance(&config);
    assert_eq!(seen(&service).weights.set_by, SetBy::Configuration);
    assert_eq!(balancer.set_weights("shop", &all(1, 3), "test", 7).expect("taken"), 1);
    near(to_s1(&service, 40), 10);

    config.vips[0].backends[0].weight = 50;
    service.apply(&mut balancer, &config);
    assert_eq!(weights(&mut balancer), [1, 3], "after a reload with another weight");
    let generation = balancer.reading("shop").expect("there").generation;
    drop(balancer);
    let mut balancer = service.balance(&config);
    assert_eq!(weights(&mut balancer), [1, 3], "after a restart");
    near(to_s1(&service, 40), 10);
    let reading = balancer.reading("shop").expect("there");
    assert_eq!((reading.set_by, reading.epoch), (SetBy::Controller, 7));
    assert_eq!(reading.generation, generation, "counters went on");
    let noted = seen(&service).weights;
    assert_eq!(
        (noted.set_by, noted.who.as_str(), noted.epoch),
        (SetBy::Controller, "test", Some(7))
    );

    balancer.release("shop").expect("given back");
    assert_eq!(weights(&mut balancer), [50, 1]);
    assert_eq!(seen(&service).weights.set_by, SetBy::Configuration);
    service.net.leave();
}

#[test]
fn zero_drains_and_connections_stay() {
    if !privileged() {
        return;
    }
    let policies = [
        Policy::WeightedRoundRobin,
        Policy::PowerOfTwo,
        Policy::LeastConnections,
        Policy::Hash,
        Policy::Maglev,
    ];
    let (service, mut config) = steered(policies[0]);
    let mut balancer = service.balance(&config);
    let mut before: Vec<_> =
        service.connect(12).into_iter().map(|one| one.expect("connects")).collect();
    assert!(before.iter().any(|one| one.server == "s1"));
    for policy in policies {
        config.vips[0].policy = policy;
        service.apply(&mut balancer, &config);
        balancer.set_weights("shop", &all(5, 5), "test", 1).expect("taken");
        assert!(to_s1(&service, 40) > 0, "{policy:?}");
        balancer.set_weights("shop", &all(0, 5), "test", 2).expect("taken");
        assert_eq!(to_s1(&service, 20), 0, "{policy:?}");
        for connection in &mut before {
            assert_eq!(connection.ask().as_deref(), Ok(connection.server.as_str()), "{policy:?}");
        }
    }
    service.net.leave();
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    if !privileged() {
        return;
    }
    let (service, mut config) = steered(Policy::WeightedRoundRobin);
    let mut balancer = service.balance(&config);
    balancer.set_weights("shop", &all(0, 5), "test", 3).expect("taken");
    let mut says = |vip: &str, plan: &[(&str, u16)]| {
        let plan: Vec<_> = plan.iter().map(|(name, w)| ((*name).to_owned(), *w)).collect();
        balancer.set_weights(vip, &plan, "test", 4).expect_err("refused").to_string()
    };
    let text = says("shop", &[("s2", 1), ("s9", 1)]);
    assert!(text.contains("s9") && text.contains("s1, s2"), "{text}");
    assert!(says("shed", &[("s1", 1)]).contains("expected one of shop"));
    assert!(says("shop", &[("s2", 0)]).contains("every server would have weight 0"));
    assert_eq!(weights(&mut balancer), [0, 5]);
    assert_eq!(balancer.reading("shop").expect("there").epoch, 3);

    // A server that is down or drains takes no connections, whatever its weight.
    for state in [BackendState::Down, BackendState::Draining] {
        config.vips[0].backends[0].state = state;
        service.apply(&mut balancer, &config);
        let error = balancer.set_weights("shop", &all(9, 0), "test", 5).expect_err("refused");
        assert!(error.to_string().contains("every server would have weight 0"), "{error}");
        assert_eq!(weights(&mut balancer), [0, 5], "{state:?}");
    }

    // A policy without weights neither takes nor keeps any: s1 would be drained for ever.
    config.vips[0].policy = Policy::RoundRobin;
    service.apply(&mut balancer, &config);
    assert_eq!(weights(&mut balancer), [1, 1]);
    let error = balancer.set_weights("shop", &all(1, 2), "test", 5).expect_err("refused");
    assert!(error.to_string().contains("round_robin takes no weights"), "{error}");
    assert_eq!(seen(&service).weights.set_by, SetBy::Configuration);
    service.net.leave();
}

#[test]
fn turns_follow_cpu_load_and_a_server_without_a_report_gets_the_average() {
    if !privileged() {
        return;
    }
    let (service, config) = steered(Policy::Awrr(Load::Cpu));
    let mut balancer = service.balance(&config);
    let told = |cpu, failures| Told { cpu, unix_ms: 5, failures };
    let tell = |balancer: &mut Balancer, s1, s2| {
        balancer.note_loads("shop", &[("s1".to_owned(), s1), ("s2".to_owned(), s2)]);
        balancer.refresh().expect("refreshes");
    };
    balancer.note_loads("shop", &[("s1".to_owned(), told(Some(0.9), 0))]);
    balancer.refresh().expect("refreshes");
    assert_eq!(weights(&mut balancer), [1, 1], "not before all were asked");
    tell(&mut balancer, told(Some(0.75), 0), told(Some(0.25), 0));
    assert_eq!(weights(&mut balancer), [8, 13]);
    near(to_s1(&service, 42), 16);
    tell(&mut balancer, told(None, 2), told(Some(0.25), 0));
    assert_eq!(weights(&mut balancer), [10, 10]);
    tell(&mut balancer, told(None, 1), told(Some(0.5), 0));
    let seen = seen(&service);
    assert_eq!(seen.weights.set_by, SetBy::Load);
    assert_eq!((seen.backends[0].load, seen.backends[0].load_failures), (None, 3));
    assert_eq!((seen.backends[1].load, seen.backends[1].load_failures), (Some(0.5), 0));

    // The next daemon goes on with the weights of this one.
    tell(&mut balancer, told(Some(0.75), 0), told(Some(0.25), 0));
    drop(balancer);
    let mut balancer = service.balance(&config);
    assert_eq!(weights(&mut balancer), [8, 13]);
    let error = balancer.set_weights("shop", &all(1, 2), "test", 5).expect_err("refused");
    assert!(error.to_string().contains("awrr takes no weights"), "{error}");
    service.net.leave();
}

#[test]
fn a_configured_zero_drains_under_awrr_too() {
    if !privileged() {
        return;
    }
    for load in [Load::Connections, Load::Cpu] {
        let (service, mut config) = steered(Policy::Awrr(load));
        let mut balancer = service.balance(&config);
        let told = |cpu| Told { cpu: Some(cpu), unix_ms: 5, failures: 0 };
        let tell = |balancer: &mut Balancer| {
            let all = [("s1".to_owned(), told(0.1)), ("s2".to_owned(), told(0.9))];
            balancer.note_loads("shop", &all);
            balancer.refresh().expect("refreshes");
        };
        tell(&mut balancer);
        assert!(weights(&mut balancer)[0] > 1, "follows the load");
        config.vips[0].backends[0].weight = 0;
        service.apply(&mut balancer, &config);
        tell(&mut balancer);
        assert_eq!(weights(&mut balancer)[0], 0, "{load:?}");
        assert_eq!(to_s1(&service, 12), 0, "{load:?}");
        service.net.leave();
    }
}
