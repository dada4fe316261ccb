//! What a balancer says that it has: where nothing is configured, and for services with `backends: auto`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use plimsoll_control::ServiceView;
use plimsoll_sink::{FoundPool, Sink};

use super::finding::{Finding, Findings};
use super::running::Running;
use super::{examine_service, share};
use crate::config::Service;
use crate::run::looker::{backends, service_name};

/// What to do about a pool that cannot be helped is part of the reason.
const NOTHING: &str = "";

/// Looks at every pool of a balancer, or at these; a daemon that steers it answers at `listen`.
pub async fn examine(sink: &Sink, only: &[String], listen: SocketAddr) -> Findings {
    let mut findings = Findings::default();
    let place = sink.place();
    let pools = match sink.look().await {
        Ok(pools) => pools,
        Err(error) => {
            findings.add(Finding::error("balancer", error.to_string(), NOTHING));
            return findings;
        }
    };
    let running = Running::ask(listen).await;
    findings.add(api(&running, listen));
    let helped = reach(&place, &pools, only, &mut findings);
    let mut taken = BTreeSet::new();
    let mut services = Vec::new();
    for pool in helped {
        let name = service_name(&pool.name, &mut taken);
        let told = running.service(&name).filter(|view| is_of(view, pool));
        let mut service = Service::auto(name, sink.with_pool(&pool.name), &place);
        findings.append(examine_service(&mut service, told).await);
        services.push(service);
    }
    share(&services, &mut findings);
    findings
}

fn api(running: &Running, listen: SocketAddr) -> Finding {
    match running {
        Running::Daemon(told) => {
            let what = format!("a daemon answers at {listen} (services: {})", told.len());
            Finding::ok("api", what)
        }
        Running::Nobody => Finding::note(
            "api",
            format!(
                "no daemon answers at {listen}; where one answers elsewhere, give its address as --listen"
            ),
        ),
        Running::Stranger(why) => Finding::note(
            "api",
            format!("no daemon answers at {listen}, but something else ({why})"),
        ),
    }
}

/// A daemon may steer another balancer, whose pool has the same name.
fn is_of(view: &ServiceView, pool: &FoundPool) -> bool {
    view.backends.iter().all(|b| pool.servers.iter().any(|server| server.name == b.backend))
}

/// The pools that can be helped, of those that were asked for; the reasons of the others are found.
fn reach<'a>(
    place: &str,
    pools: &'a [FoundPool],
    only: &[String],
    findings: &mut Findings,
) -> Vec<&'a FoundPool> {
    for unknown in only.iter().filter(|name| !pools.iter().any(|pool| pool.name == **name)) {
        findings.add(Finding::error(unknown, format!("{place} has no such pool"), NOTHING));
    }
    let chosen = pools.iter().filter(|pool| only.is_empty() || only.contains(&pool.name));
    let (helped, others): (Vec<&FoundPool>, Vec<&FoundPool>) =
        chosen.partition(|pool| pool.out_of_reach().is_none());
    for pool in others {
        let why = format!("out of reach: {}", pool.out_of_reach().unwrap_or_default());
        if pool.waits_for_names() {
            let why = format!("{why}; `plimsoll run` waits for them");
            findings.add(Finding::warning(&pool.name, why, NOTHING));
            continue;
        }
        // Those that nobody named do not matter beside one that can be helped.
        findings.add(match helped.is_empty() && !only.is_empty() {
            true => Finding::error(&pool.name, why, NOTHING),
            false => Finding::note(&pool.name, why),
        });
    }
    let waits = |pool: &FoundPool| pool.waits_for_names();
    if helped.is_empty() && only.is_empty() && !pools.iter().any(waits) {
        let what = format!("{place}: none of its pools can be helped");
        findings.add(Finding::error("balancer", what, NOTHING));
    }
    helped
}

/// Gives a service the servers that its balancer has, of several the first one that tells, as the daemon takes them; the
/// names of those that are left alone.
pub async fn servers(service: &mut Service, findings: &mut Findings) -> BTreeSet<String> {
    for sink in service.sink.value.iter() {
        // A balancer that cannot be asked is found to be so by those who look at it next.
        let Ok(pools) = sink.look().await else { continue };
        if let Some(pool) = pools.iter().find(|pool| pool.name == sink.pool()) {
            findings.add(found(&service.name, pool));
            service.backends = backends(pool);
            let alone = pool.servers.iter().filter(|server| server.place.is_err());
            return alone.map(|server| server.name.clone()).collect();
        }
    }
    BTreeSet::new()
}

fn found(service: &str, pool: &FoundPool) -> Finding {
    match pool.out_of_reach() {
        None => {
            let what = format!("its servers are asked of the balancer: {}", pool.summary());
            Finding::ok(service, what)
        }
        Some(why) => Finding::error(
            service,
            format!("its servers are asked of the balancer: {why}"),
            NOTHING,
        ),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Method, MethodKind};
    use plimsoll_sink::{FoundServer, LeftAlone};

    use super::super::finding::Severity;
    use super::*;

    fn pool(name: &str, places: &[Result<u16, LeftAlone>]) -> FoundPool {
        let server = |(i, place): (usize, &Result<u16, LeftAlone>)| FoundServer {
            name: format!("s{i}"),
            place: place.map(|port| ([10, 0, 0, 1], port).into()),
        };
        let method = Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight };
        let servers = places.iter().enumerate().map(server).collect();
        FoundPool { name: name.to_owned(), method, servers, conflict: None, unknown: None }
    }

    fn severities(pools: &[FoundPool], only: &[&str]) -> Vec<(String, Severity)> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let mut findings = Findings::default();
        reach("HAProxy", pools, &only, &mut findings);
        findings.all().iter().map(|f| (f.about.clone(), f.severity)).collect()
    }

    #[test]
    fn it_is_an_error_that_nothing_can_be_helped() {
        let free = [Err(LeftAlone::Unresolved), Err(LeftAlone::Unresolved)];
        let pools = [pool("slots", &free), pool("one", &[Ok(1)])];
        let is = |about: &str, severity| (about.to_owned(), severity);
        // Its names may be resolved yet, and then it can.
        assert_eq!(severities(&pools, &["slots"]), [is("slots", Severity::Warning)]);
        let both = [is("slots", Severity::Warning), is("one", Severity::Note)];
        assert_eq!(severities(&pools, &[]), both);
        assert_eq!(severities(&pools, &["one"]), [is("one", Severity::Error)]);
        let none = [is("one", Severity::Note), is("balancer", Severity::Error)];
        assert_eq!(severities(&pools[1..], &[]), none);
        assert_eq!(severities(&[], &[]), [is("balancer", Severity::Error)]);
        let [slots, one] = pools;
        let pools = [slots, one, pool("shop", &[Ok(1), Ok(2)])];
        assert_eq!(severities(&pools, &["slots", "shop"]), [is("slots", Severity::Warning)]);
        assert_eq!(severities(&pools, &["shop"]), []);
        assert_eq!(severities(&pools, &["shoq"]), [is("shoq", Severity::Error)]);
    }

    #[test]
    fn what_a_daemon_says_of_another_balancers_pool_is_not_taken() {
        let view = crate::client::tests::view("shop");
        let of = |names: &[&str]| {
            let mut pool = pool("shop", &[Ok(1), Ok(2), Ok(3)]);
            pool.servers.iter_mut().zip(names).for_each(|(s, name)| s.name = (*name).to_owned());
            is_of(&view, &pool)
        };
        assert!(of(&["s1", "s2", "s3"]) && !of(&["web1", "web2", "web3"]));
    }
}
