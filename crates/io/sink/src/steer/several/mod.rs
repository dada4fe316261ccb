//! Several balancers before one pool, behind one handle: plans go to all of them, and what they report is added up. All
//! get the same weights, or each those of its subset of the servers ([`super::subsets`]).
//!
//! While one is lost the others are steered on: what it had counted stays in the sums, and what it had in flight does
//! not. When it comes back, its weights are reported as they are, which is what has the controller assert them again. So
//! it is with one that refuses to be steered. The pool is then degraded, and the reason is reported. Weights that differ
//! between balancers are reported as those that deviate from the plan.

mod member;
mod sum;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use plimsoll_model::{Applied, BackendId, BalancerReport, MethodKind, Plan, PlanEntry, PlanKind};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::handle::{Loss, Orders, SinkEnd, SinkHandle, SinkReport};
use super::shares::Shares;
use super::subsets::{Row, Subsets};
use member::Member;
pub use member::Named;
use sum::{added, as_planned};

/// Starts it on the runtime of the caller; it ends when the handle is dropped. A member that is silent for `gone`
/// is gone. With `subsets`, the highest weight that all can hold, each gets a subset of the servers.
pub fn start(
    members: Vec<(Named, SinkHandle)>,
    servers: &[(BackendId, String)],
    gone: Duration,
    subsets: Option<u32>,
) -> SinkHandle {
    let (handle, end) = SinkHandle::new();
    let members = members.into_iter().map(|(name, handle)| Member::new(name, handle));
    let members: Vec<Member> = members.collect();
    let shares = Shares::new(members.len());
    let subsets = subsets.map(|greatest| Subsets::new(members.len(), greatest));
    let several = Several {
        members,
        names: servers.iter().cloned().collect(),
        end,
        gone,
        shares,
        subsets,
        is_whole: false,
        plan: None,
        planned: Row::new(),
        epoch: None,
        degraded: None,
    };
    tokio::spawn(several.run());
    handle
}

struct Several {
    members: Vec<Member>,
    names: BTreeMap<BackendId, String>,
    end: SinkEnd,
    gone: Duration,
    shares: Shares,
    /// Where each has a subset of the servers.
    subsets: Option<Subsets>,
    /// All have all servers, because one could not serve with its subset.
    is_whole: bool,
    /// The last plan.
    plan: Option<Plan>,
    /// The weights of all plans so far, the last ones of each server.
    planned: Row,
    /// The plan that is not answered yet.
    epoch: Option<u64>,
    /// What was last reported of balancers that cannot be steered.
    degraded: Option<Loss>,
}

impl Several {
    async fn run(mut self) {
        let bell = Arc::new(Notify::new());
        self.end.mailbox.ring(&bell);
        loop {
            let look = Instant::now() + self.gone / 2;
            tokio::select! {
                biased;
                () = bell.notified() => {
                    let Some(orders) = self.end.mailbox.take() else { continue };
                    if orders.closed {
                        return;
                    }
                    self.pass_on(orders);
                }
                (at, report) = told(&mut self.members) => match report {
                    Some(report) => self.take(at, report),
                    // A task has died; the service starts anew with all of them.
                    None => return,
                },
                () = sleep_until(look) => {}
            }
            self.miss();
            self.answer();
            self.divide_anew();
            self.sum();
        }
    }

    fn pass_on(&mut self, orders: Orders) {
        if let Some(servers) = orders.servers {
            self.members.iter().for_each(|m| m.handle.set_servers(servers.clone()));
            self.names = servers.into_iter().collect();
            (self.plan, self.planned) = (None, Row::new());
            // A subset that waits was made for those before, and is dropped.
            self.members.iter_mut().for_each(|m| {
                (m.subset, m.due, m.moves) = (Row::new(), Row::new(), false);
                m.strays.clear();
            });
        }
        let Some(plan) = orders.plan else { return };
        self.planned.extend(plan.entries.iter().map(|entry| (entry.backend, entry.weight)));
        self.epoch = Some(plan.epoch);
        self.divide(&plan);
        for member in &mut self.members {
            (member.answer, member.moves) = (None, false);
            member.handle.program(with_weights(&plan, &member.due));
        }
        self.plan = Some(plan);
    }

    /// Whether a plan of this kind is divided: under in-flight methods, because a split gains nothing and a hash would
    /// send one key to several servers; and not what stays when Plimsoll stops, because nobody would divide it anew
    /// when a balancer takes over from another.
    fn is_divided(&self, kind: PlanKind) -> bool {
        let mut read = self.members.iter().filter(|m| m.is_live()).filter_map(|m| m.last.as_ref());
        kind != PlanKind::Leaving && read.any(|report| report.method.kind == MethodKind::InFlight)
    }

    /// Divides a plan among those that are there. What it leaves alone, for it is out of service, keeps what it has.
    fn divide(&mut self, plan: &Plan) {
        let planned: Row = plan.entries.iter().map(|entry| (entry.backend, entry.weight)).collect();
        let live: Vec<bool> = self.members.iter().map(Member::is_live).collect();
        let is_divided = self.is_divided(plan.kind);
        let subsets = self.subsets.as_mut().filter(|_| is_divided);
        let mut rows = subsets.map(|subsets| subsets.divide(&self.shares, &live, &planned));
        for (at, member) in self.members.iter_mut().enumerate() {
            let row = rows.as_mut().map(|rows| std::mem::take(&mut rows[at]));
            // One that has no part, because it is lost, gets all should it be there after all.
            let row = row.filter(|row| row.values().any(|weight| *weight > 0));
            member.subset = row.unwrap_or_else(|| planned.clone());
        }
        self.is_whole = !self.can_serve();
        for member in &mut self.members {
            member.due.clone_from(if self.is_whole { &planned } else { &member.subset });
        }
        if is_divided && self.subsets.is_some() {
            self.tell_subsets(&planned);
        }
    }

    /// Whether all servers of each subset take traffic there.
    fn can_serve(&self) -> bool {
        self.members.iter().filter(|m| m.is_live()).all(|m| m.down().next().is_none())
    }

    /// Which servers each has, where that is news.
    fn tell_subsets(&mut self, planned: &Row) {
        let all = planned.values().filter(|weight| **weight > 0).count();
        for member in self.members.iter_mut().filter(|m| m.is_live()) {
            let has =
                planned.keys().copied().filter(|id| member.due.get(id).is_some_and(|w| *w > 0));
            let has = named(&self.names, has);
            let down = named(&self.names, member.down()).join(", ");
            let mut said = match has.len() == all {
                true => format!("{}: it has all {all} servers", member.name),
                false => format!("{}: it has {} of {all} servers", member.name, has.join(", ")),
            };
            if self.is_whole && !down.is_empty() {
                said += &format!(": no traffic there for {down} of its subset");
            }
            if said != member.said && self.end.offer(SinkReport::Divided(said.clone())) {
                member.said = said;
            }
        }
    }

    /// Names the balancer that holds other weights than it should: the sum only shows that one does.
    fn tell_strays(&mut self) {
        if self.epoch.is_some() {
            return;
        }
        for member in self.members.iter_mut().filter(|m| m.is_live() && !m.moves) {
            let strays = member.strays();
            for (id, held) in strays.iter().filter(|(id, held)| member.strays.get(id) != Some(held))
            {
                let (place, due) = (&member.name, member.due[id]);
                let name = named(&self.names, [*id]).join("");
                let note = format!("{place}: {name} has weight {held} there, and not {due}");
                self.end.tell(SinkReport::Note(note));
            }
            member.strays = strays;
        }
    }

    /// Gives each another subset where the traffic has moved between them, one is lost, or is there again.
    fn divide_anew(&mut self) {
        let (Some(subsets), Some(plan), None) = (&self.subsets, &self.plan, self.epoch) else {
            return;
        };
        let live: Vec<bool> = self.members.iter().map(Member::is_live).collect();
        let moves = self.members.iter().any(|m| m.moves);
        let is_stale = subsets.is_stale(&self.shares, &live) || self.can_serve() == self.is_whole;
        if moves || !self.is_divided(plan.kind) || !is_stale {
            return;
        }
        let plan = plan.clone();
        self.divide(&plan);
        for member in self.members.iter_mut().filter(|m| m.is_live()) {
            member.moves = true;
            member.handle.program(with_weights(&plan, &member.due));
        }
    }

    /// Why a balancer cannot be steered as the others are: a weight means another thing to its method.
    fn odd_method(&self, at: usize, report: &BalancerReport) -> Option<Loss> {
        let others = self.members.iter().enumerate().filter(|(i, m)| *i != at && m.is_live());
        let (other, theirs) = others.filter_map(|(_, m)| Some((m, m.last.as_ref()?))).next()?;
        (theirs.method.kind != report.method.kind).then(|| {
            let reason = self.members[at].name.says(&format!(
                "it balances by {}, and {} by {}: a weight cannot mean the same in both",
                report.method.name, other.name, theirs.method.name
            ));
            Loss { reason, retryable: false, absent: false }
        })
    }

    fn take(&mut self, at: usize, report: SinkReport) {
        let epoch = self.epoch;
        let odd = match &report {
            SinkReport::Read(report, _) => self.odd_method(at, report),
            _ => None,
        };
        let member = &mut self.members[at];
        member.heard = Instant::now();
        match report {
            SinkReport::Read(report, _) => {
                member.last = Some(report);
                (member.fresh, member.lost) = (true, odd);
            }
            SinkReport::Lost(loss) => {
                member.moves = false;
                member.lost = Some(Loss { reason: member.name.says(&loss.reason), ..loss });
                self.tell_degraded();
            }
            SinkReport::Applied(applied) if Some(applied.epoch) == epoch => {
                // What it read before tells the weights of before.
                (member.answer, member.fresh) = (Some(Ok(applied)), false);
            }
            SinkReport::Failed(failed, loss) if Some(failed) == epoch || member.moves => {
                // It refuses plans that others carry out: it cannot be steered, until it is read again.
                if !loss.retryable {
                    let reason = member.name.says(&loss.reason);
                    member.lost = Some(Loss { reason, ..loss.clone() });
                }
                // A subset that it has not taken is seen in the next reading.
                if !std::mem::take(&mut member.moves) {
                    member.answer = Some(Err(loss));
                }
            }
            SinkReport::Applied(_) if member.moves => (member.moves, member.fresh) = (false, false),
            // Of a plan that was replaced; and one balancer is whole or lost.
            SinkReport::Applied(_)
            | SinkReport::Failed(..)
            | SinkReport::Degraded(_)
            | SinkReport::Sharing(_)
            | SinkReport::Divided(_) => {}
            SinkReport::Note(note) => {
                let note = member.name.says(&note);
                self.end.tell(SinkReport::Note(note));
            }
        }
    }

    /// A member that has been silent for long is gone.
    fn miss(&mut self) {
        let mut is_news = false;
        for member in self.members.iter_mut().filter(|m| m.lost.is_none()) {
            if member.heard.elapsed() > self.gone {
                let reason = format!("{}: it has not answered for {:?}", member.name, self.gone);
                member.lost = Some(Loss { reason, retryable: true, absent: false });
                is_news = true;
            }
        }
        if is_news {
            self.tell_degraded();
        }
    }

    /// Tells what became of a plan, once all have answered that can.
    fn answer(&mut self) {
        let Some(epoch) = self.epoch else { return };
        if self.members.iter().any(|m| m.answer.is_none() && m.is_live()) {
            return;
        }
        let done: Vec<(&Member, &Applied)> = self
            .members
            .iter()
            .filter_map(|m| Some((m, m.answer.as_ref()?.as_ref().ok()?)))
            .collect();
        let failed: Vec<(&Member, &Loss)> = self
            .members
            .iter()
            .filter_map(|m| Some((m, m.answer.as_ref()?.as_ref().err()?)))
            .collect();
        if done.is_empty() && failed.is_empty() {
            return;
        }
        self.epoch = None;
        // What one refuses that cannot be steered undoes nothing in the others.
        let fatal = failed.iter().find(|(m, l)| m.is_live() || (done.is_empty() && !l.retryable));
        let report = match (done.first(), fatal) {
            (Some((member, first)), None) => {
                let of_plan = |(id, held): &(BackendId, u32)| {
                    let planned = self.planned.get(id).copied();
                    (*id, as_planned(*held, member.due_or_held(*id, *held), planned))
                };
                SinkReport::Applied(Applied {
                    epoch,
                    weights: first.weights.iter().map(of_plan).collect(),
                    commands: done.iter().map(|(_, applied)| applied.commands).sum(),
                })
            }
            (_, Some((member, loss))) => {
                let others = match done.len() {
                    0 => "no balancer holds the plan".to_owned(),
                    some => format!("{some} of {} balancers hold the plan", self.members.len()),
                };
                let reason = format!("{}; {others}", member.name.says(&loss.reason));
                SinkReport::Failed(epoch, Loss { reason, ..(*loss).clone() })
            }
            (None, None) => SinkReport::Failed(epoch, failed[0].1.clone()),
        };
        self.end.tell(report);
    }

    /// Reports the sum, once all that are there have reported again.
    fn sum(&mut self) {
        let mut live = self.members.iter().filter(|m| m.is_live()).peekable();
        if live.peek().is_none() || live.any(|m| !m.fresh || m.last.is_none()) {
            return;
        }
        self.members.iter_mut().for_each(|m| m.fresh = false);
        self.tell_strays();
        let counted: Vec<Option<u64>> = self.members.iter().map(Member::counted).collect();
        self.shares.look(Instant::now(), &counted);
        if let Some(sharing) = self.shares.sharing() {
            self.end.tell(SinkReport::Sharing(sharing));
        }
        if self.degraded != self.degraded_by() {
            self.tell_degraded();
        }
        let report = match added(&self.members, &self.planned, self.epoch.is_some()) {
            Ok(report) => SinkReport::Read(report, Duration::ZERO),
            Err(reason) => SinkReport::Lost(Loss { reason, retryable: false, absent: false }),
        };
        self.end.tell(report);
    }

    /// Why balancers cannot be steered that should be; none where all can be.
    fn degraded_by(&self) -> Option<Loss> {
        let lost = || self.members.iter().filter_map(|m| m.lost.as_ref());
        let reasons: Vec<&str> = lost().map(|loss| loss.reason.as_str()).collect();
        let reasons_text = reasons.join("; ");
        let reason = match (reasons.len(), self.members.len()) {
            (0, _) => return None,
            (lost, all) if lost == all => reasons_text,
            (lost, all) => format!(
                "diverged: {lost} of {all} balancers cannot be steered, and keep the weights that they have: {reasons_text}"
            ),
        };
        let retryable = lost().any(|loss| loss.retryable);
        Some(Loss { reason, retryable, absent: lost().all(|loss| loss.absent) })
    }

    /// Reports it: as the trouble of the whole only where no member is left.
    fn tell_degraded(&mut self) {
        let degraded = self.degraded_by();
        let all_lost = self.members.iter().all(|m| !m.is_live());
        if let Some(loss) = degraded.clone().filter(|_| all_lost) {
            self.end.tell(SinkReport::Lost(loss));
        } else if self.end.offer(SinkReport::Degraded(degraded.clone())) {
            self.degraded = degraded;
        }
    }
}

/// What these servers are called.
fn named(
    names: &BTreeMap<BackendId, String>,
    ids: impl IntoIterator<Item = BackendId>,
) -> Vec<&str> {
    ids.into_iter().filter_map(|id| names.get(&id).map(String::as_str)).collect()
}

/// The plan with these weights.
fn with_weights(plan: &Plan, weights: &Row) -> Plan {
    let entries = plan.entries.iter().map(|entry| PlanEntry {
        weight: weights.get(&entry.backend).copied().unwrap_or(entry.weight),
        ..*entry
    });
    Plan { entries: entries.collect(), ..plan.clone() }
}

/// The next report of any member; none from one whose task has died.
async fn told(members: &mut [Member]) -> (usize, Option<SinkReport>) {
    poll_fn(|cx| {
        for (at, member) in members.iter_mut().enumerate() {
            if let Poll::Ready(report) = member.handle.reports.poll_recv(cx) {
                return Poll::Ready((at, report));
            }
        }
        Poll::Pending
    })
    .await
}
