//! What several balancers report, added up.

use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_model::{
    BackendId, BalancerReport, ResponseTimes, ServerReport, ServerStatus, Traffic,
};

use super::member::{Member, is_steered};
use crate::steer::subsets::Row;

/// A weight that a member holds in terms of the plan: what was planned where it holds what is due, and otherwise
/// something else.
pub(super) fn as_planned(held: u32, due: u32, planned: Option<u32>) -> u32 {
    match planned {
        Some(planned) if due == held => planned,
        // By chance what the plan has for all balancers together.
        Some(planned) if planned == held => planned.saturating_add(1),
        _ => held,
    }
}

/// The sum of what all have last reported; `under_way`: a plan is.
pub(super) fn added(
    members: &[Member],
    planned: &Row,
    under_way: bool,
) -> Result<BalancerReport, String> {
    let reports = || members.iter().filter_map(|m| Some((m, m.last.as_ref()?)));
    let live = reports().find(|(m, _)| m.is_live());
    let (_, base) = live.ok_or("no balancer is there")?;
    let mut generation = DefaultHasher::new();
    for (at, member) in members.iter().enumerate() {
        (at, member.last.as_ref().map(|report| report.generation)).hash(&mut generation);
    }
    // Where one tells nothing of its requests, the sum is not known.
    let tells_nothing =
        reports().any(|(m, report)| m.is_live() && report.traffic == Traffic::Unknown);
    let ids = base.servers.iter().map(|server| server.backend);
    let servers = ids.map(|id| {
        let of = reports().filter_map(|(m, report)| {
            let server = report.servers.iter().find(|server| server.backend == id)?;
            // While it moves to another subset, or to a plan, weights of before and of after are ours.
            let moves = m.moves || under_way && m.answer.is_none();
            let due = if moves { server.weight } else { m.due_or_held(id, server.weight) };
            Some((m.is_live(), server, due))
        });
        server(id, of.collect(), planned.get(&id).copied())
    });
    Ok(BalancerReport {
        at: reports().filter(|(m, _)| m.is_live()).map(|(_, r)| r.at).max().unwrap_or(base.at),
        method: base.method.clone(),
        generation: generation.finish(),
        traffic: if tells_nothing { Traffic::Unknown } else { Traffic::Counted },
        servers: servers.collect(),
    })
}

fn server(
    backend: BackendId,
    all: Vec<(bool, &ServerReport, u32)>,
    planned: Option<u32>,
) -> ServerReport {
    let live = || all.iter().filter(|(live, ..)| *live).map(|(_, report, _)| *report);
    let counted = |count: fn(&ServerReport) -> u64| {
        all.iter().fold(0u64, |sum, (_, report, _)| sum.saturating_add(count(report)))
    };
    let now = |count: fn(&ServerReport) -> u32| {
        live().fold(0u32, |sum, report| sum.saturating_add(count(report)))
    };
    let held = all.iter().filter(|(live, report, _)| *live && is_steered(report));
    let mut held = held.map(|(_, report, due)| as_planned(report.weight, *due, planned));
    let deviates = held.find(|weight| Some(*weight) != planned);
    let answered: Option<Vec<u64>> =
        all.iter().map(|(_, report, _)| report.answered_total).collect();
    let measured: Option<Vec<ResponseTimes>> =
        all.iter().map(|(_, report, _)| report.response_times).collect();
    // It takes traffic as long as one of them sends it some.
    let status = live().map(|report| report.status).max_by_key(|status| status.takes_traffic());
    ServerReport {
        backend,
        weight: deviates.or(planned).unwrap_or(0),
        status: status.unwrap_or(ServerStatus::Down),
        checked: live().next().is_some() && live().all(|report| report.checked),
        in_flight: now(|report| report.in_flight),
        queued: now(|report| report.queued),
        started_total: counted(|report| report.started_total),
        errors_total: counted(|report| report.errors_total),
        answered_total: answered
            .map(|all| all.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))),
        response_times: measured.map(|all| {
            all.iter().fold(ResponseTimes::default(), |sum, one| ResponseTimes {
                count: sum.count.saturating_add(one.count),
                sum_us: sum.sum_us.saturating_add(one.sum_us),
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Method, MethodKind, Nanos};

    use super::*;
    use crate::steer::handle::SinkHandle;
    use crate::steer::several::member::Named;

    #[test]
    fn weights_of_before_are_no_strangers_while_a_plan_is_under_way() {
        let id = BackendId(5);
        let mut member =
            Member::new(Named { place: "a".to_owned(), pool: None }, SinkHandle::new().0);
        let server = ServerReport::new(id, 0, ServerStatus::Up);
        member.last = Some(BalancerReport {
            at: Nanos::ZERO,
            method: Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight },
            generation: 1,
            traffic: Traffic::Counted,
            servers: vec![server],
        });
        let planned = Row::from([(id, 80)]);
        member.due.clone_from(&planned);
        let weight = |member: &Member, under_way| {
            let members = std::slice::from_ref(member);
            added(members, &planned, under_way).expect("it is there").servers[0].weight
        };
        assert_eq!((weight(&member, true), weight(&member, false)), (80, 0));
        member.answer =
            Some(Err(crate::Loss { reason: String::new(), retryable: true, absent: false }));
        assert_eq!(weight(&member, true), 0, "it has answered");
        member.due.clear();
        assert_eq!(weight(&member, true), 80, "plans leave it alone");
    }
}
