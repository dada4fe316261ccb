//! One server in a container: it shares its CPU among its requests, at full speed until the quota of the period is
//! spent (Linux, `Documentation/scheduler/sched-bwc.rst`).

use std::collections::VecDeque;

/// Period of a quota, seconds; what Kubernetes sets.
pub(super) const PERIOD_S: f64 = 0.1;

/// A request in service.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// It is done when every request has had this much CPU since the server began, seconds.
    done_at: f64,
    /// When it was sent, seconds; `None`: its client has given up.
    sent: Option<f64>,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Container {
    quota: f64,
    allowance_s: f64,
    period_left_s: f64,
    /// CPU time of a request that was there from the beginning, seconds.
    served_s: f64,
    jobs: Vec<Job>,
    /// Processes, each of which serves one request at a time to its end, whether its client waits or not, as php-fpm's
    /// do; `None`: any number of requests at once, and none of clients that have given up.
    workers: Option<usize>,
    /// Requests that no process serves yet: when each was sent, and its CPU time.
    waiting: VecDeque<(Option<f64>, f64)>,
    paused_until: f64,
}

impl Container {
    /// A server with this quota in cores (1: no quota), whose first period ends after the part `phase` of one.
    pub fn new(quota: f64, phase: f64) -> Self {
        Container {
            quota,
            allowance_s: quota * PERIOD_S,
            period_left_s: phase * PERIOD_S,
            served_s: 0.0,
            jobs: Vec::new(),
            workers: None,
            waiting: VecDeque::new(),
            paused_until: f64::NEG_INFINITY,
        }
    }

    /// The same with so many processes, each of which serves one request at a time to its end, whether its client waits
    /// or not, as php-fpm's do.
    pub fn with_workers(mut self, workers: Option<usize>) -> Self {
        self.workers = workers;
        self
    }

    /// Requests whose clients wait.
    pub fn in_flight(&self) -> u32 {
        let sent = self.jobs.iter().map(|job| job.sent);
        sent.chain(self.waiting.iter().map(|(sent, _)| *sent)).flatten().count() as u32
    }

    /// Changes its quota, in cores, from the next period on.
    pub fn set_quota(&mut self, quota: f64) {
        self.quota = quota;
    }

    /// Stops it until this time, seconds.
    pub fn pause_until(&mut self, until: f64) {
        self.paused_until = until;
    }

    /// Takes a request that needs this much CPU, seconds.
    pub fn take(&mut self, now: f64, cpu_s: f64) {
        self.waiting.push_back((Some(now), cpu_s));
        self.begin();
    }

    /// Begins what there are processes for.
    fn begin(&mut self) {
        while self.workers.is_none_or(|workers| self.jobs.len() < workers) {
            let Some((sent, cpu_s)) = self.waiting.pop_front() else { return };
            self.jobs.push(Job { done_at: self.served_s + cpu_s, sent });
        }
    }

    /// Simulates this time; adds to `answered` when each answered request was sent.
    pub fn advance(&mut self, now: f64, seconds: f64, answered: &mut Vec<f64>) {
        self.period_left_s -= seconds;
        if self.period_left_s <= 0.0 {
            self.period_left_s += PERIOD_S;
            self.allowance_s = self.quota * PERIOD_S;
        }
        if now < self.paused_until {
            return;
        }
        let mut cpu_s = if self.quota >= 1.0 { seconds } else { seconds.min(self.allowance_s) };
        while cpu_s > 0.0 && !self.jobs.is_empty() {
            let next = self.jobs.iter().map(|job| job.done_at).fold(f64::INFINITY, f64::min);
            let n = self.jobs.len() as f64;
            let needed = (next - self.served_s) * n;
            let used = needed.min(cpu_s);
            self.served_s += used / n;
            self.allowance_s -= used;
            cpu_s -= used;
            if needed <= used {
                let done = |job: &Job| job.done_at <= next;
                answered
                    .extend(self.jobs.iter().filter(|job| done(job)).filter_map(|job| job.sent));
                self.jobs.retain(|job| !done(job));
                self.begin();
            }
        }
    }

    /// The clients of requests sent before this time wait no longer; returns their number.
    pub fn give_up(&mut self, sent_before: f64) -> u64 {
        let waiting = self.waiting.iter_mut().map(|(sent, _)| sent);
        let mut count = 0;
        for sent in self.jobs.iter_mut().map(|job| &mut job.sent).chain(waiting) {
            if sent.is_some_and(|at| at < sent_before) {
                (*sent, count) = (None, count + 1);
            }
        }
        if count > 0 && self.workers.is_none() {
            self.jobs.retain(|job| job.sent.is_some());
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_S: f64 = 2e-4;

    /// The times at which requests of 5 ms of CPU, sent at these times, are answered.
    fn answered_at(mut server: Container, sent: &[f64], seconds: f64) -> Vec<f64> {
        let (mut all, mut next) = (Vec::new(), 0);
        for step in 0..(seconds / STEP_S) as u64 {
            let now = step as f64 * STEP_S;
            while next < sent.len() && sent[next] <= now {
                server.take(now, 0.005);
                next += 1;
            }
            let mut answered = Vec::new();
            server.advance(now, STEP_S, &mut answered);
            all.extend(answered.iter().map(|_| now + STEP_S));
        }
        all
    }

    #[test]
    fn a_single_request_takes_its_work_and_two_share_the_cpu() {
        let alone = answered_at(Container::new(1.0, 1.0), &[0.0], 1.0);
        assert!((alone[0] - 0.005).abs() < 1e-3, "{alone:?}");
        let two = answered_at(Container::new(1.0, 1.0), &[0.0, 0.0], 1.0);
        assert!(two.iter().all(|at| (at - 0.010).abs() < 1e-3), "{two:?}");
    }

    #[test]
    fn server_works_at_full_speed_until_its_quota_is_spent() {
        // 10 ms of every 100: two requests at once, the third in the next period.
        let sent = [0.0, 0.006, 0.012];
        let at = answered_at(Container::new(0.1, 1.0), &sent, 1.0);
        assert!(at[1] < 0.02 && (at[2] - 0.105).abs() < 2e-3, "{at:?}");
        let many: Vec<f64> = (0..1_000).map(|_| 0.0).collect();
        let mut server = Container::new(0.1, 1.0);
        server.pause_until(1.0);
        let done = answered_at(server, &many[..100], 20.0);
        assert!(done.iter().all(|at| *at > 1.0), "it paused");
        assert_eq!(done.len(), 100, "20 a second");
    }

    #[test]
    fn workers_serve_one_after_the_other_also_what_nobody_waits_for() {
        let mut answered = [None, Some(1)].map(|workers| {
            let mut server = Container::new(1.0, 1.0).with_workers(workers);
            server.take(0.0, 0.5);
            server.take(0.2, 0.1);
            assert_eq!((server.give_up(0.1), server.in_flight()), (1, 1));
            let at = |step: u32| f64::from(step) * STEP_S;
            let mut answered = Vec::new();
            let steps = (0..5_000).take_while(|step| {
                server.advance(at(*step), STEP_S, &mut answered);
                answered.is_empty()
            });
            (at(steps.count() as u32), answered)
        });
        answered.iter().for_each(|(_, sent)| assert_eq!(*sent, [0.2]));
        let [dropped, served] = answered.each_mut().map(|(at, _)| *at);
        assert!((dropped - 0.1).abs() < 1e-3 && (served - 0.6).abs() < 1e-3, "{answered:?}");
    }
}
