//! What each client does, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection::Connection;
use super::report::micros;
use super::{Break, BrokenConnection, Session, Sessions, Shared};

/// How often to look whether it is over.
const BLINK: Duration = Duration::from_millis(20);
/// Before a client whose connection broke tries again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// All clients, until it is over; connections under way then are dropped.
pub(super) async fn all(shared: &Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let mut seeds = Xoshiro256PlusPlus::seed_from_u64(shared.spec.seed);
    let mut next_rng = || Xoshiro256PlusPlus::seed_from_u64(seeds.random());
    for _ in 0..shared.spec.downloads {
        tasks.spawn(downloads(Arc::clone(shared)));
    }
    match &shared.spec.sessions {
        &Sessions::Closed { clients } => {
            for _ in 0..clients {
                tasks.spawn(closed_loop(Arc::clone(shared), next_rng()));
            }
            while !shared.is_over() {
                sleep(BLINK).await;
            }
        }
        &Sessions::Open { connections_per_s } => {
            let mut due = Duration::ZERO;
            while !shared.is_over() {
                let mut rng = next_rng();
                due += exponential(&mut rng, Duration::from_secs_f64(connections_per_s.recip()));
                until(shared, due).await;
                let theirs = Arc::clone(shared);
                tasks.spawn(async move { session(&theirs, &mut rng).await.unwrap_or(()) });
                // What has ended is forgotten as we go.
                while tasks.try_join_next().is_some() {}
            }
        }
        Sessions::Listed(sessions) => {
            for one in sessions {
                until(shared, one.begins).await;
                if shared.is_over() {
                    break;
                }
                let (theirs, one) = (Arc::clone(shared), *one);
                tasks.spawn(async move { listed(&theirs, one).await.unwrap_or(()) });
                while tasks.try_join_next().is_some() {}
            }
            while !shared.is_over() {
                sleep(BLINK).await;
            }
        }
    }
    tasks.shutdown().await;
}

/// Waits for a moment of the load, or for its end.
async fn until(shared: &Shared, due: Duration) {
    while !shared.is_over() && shared.began.elapsed() < due {
        sleep(due.saturating_sub(shared.began.elapsed()).min(BLINK)).await;
    }
}

async fn closed_loop(shared: Arc<Shared>, mut rng: Xoshiro256PlusPlus) {
    // Not all at once: the first connections begin within one pause.
    sleep(exponential(&mut rng, shared.spec.pause)).await;
    loop {
        if session(&shared, &mut rng).await.is_err() {
            sleep(AGAIN_AFTER).await;
        }
    }
}

/// One connection of short requests.
async fn session(shared: &Shared, rng: &mut Xoshiro256PlusPlus) -> Result<(), Break> {
    let mut open = Open::new(shared, false).await?;
    for request in 0..shared.spec.requests {
        if request > 0 {
            sleep(exponential(rng, shared.spec.pause)).await;
        }
        open.ask().await?;
    }
    open.ended();
    Ok(())
}

/// One connection that lasts as long as it is listed to.
async fn listed(shared: &Shared, session: Session) -> Result<(), Break> {
    let mut open = Open::new(shared, false).await?;
    let end = open.since + session.lasts;
    loop {
        open.ask().await?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            open.ended();
            return Ok(());
        }
        sleep(left.min(shared.spec.pause)).await;
    }
}

async fn downloads(shared: Arc<Shared>) {
    loop {
        if download(&shared).await.is_err() {
            sleep(AGAIN_AFTER).await;
        }
    }
}

/// One connection of downloads, until it breaks.
async fn download(shared: &Shared) -> Result<(), Break> {
    let mut open = Open::new(shared, true).await?;
    loop {
        let progress = |bytes| {
            let mut report = shared.report();
            report.download_bytes += bytes;
            report.second(shared.began.elapsed()).bytes += bytes;
        };
        let answer = open.connection.get(&shared.spec.download_path, progress).await;
        open.answered(answer)?;
        shared.report().downloads += 1;
    }
}

/// A connection that is counted as open for as long as it lives.
struct Open<'a> {
    shared: &'a Shared,
    connection: Connection,
    since: Instant,
    download: bool,
    counted: bool,
}

impl<'a> Open<'a> {
    async fn new(shared: &'a Shared, download: bool) -> Result<Self, Break> {
        let began = Instant::now();
        match Connection::open(shared.spec.target, shared.spec.patience).await {
            Ok(connection) => {
                let mut report = shared.report();
                report.opened += 1;
                report.open += 1;
                report.second(shared.began.elapsed()).opened += 1;
                report.connect_us.saturating_record(micros(began.elapsed()));
                Ok(Open { shared, connection, since: Instant::now(), download, counted: false })
            }
            Err(how) => {
                note(shared, how, Duration::ZERO, download, None);
                Err(how)
            }
        }
    }

    /// One short request.
    async fn ask(&mut self) -> Result<(), Break> {
        let asked = Instant::now();
        let answer = self.connection.get(&self.shared.spec.path, |_| {}).await;
        self.answered(answer)?;
        let mut report = self.shared.report();
        report.requests += 1;
        report.second(self.shared.began.elapsed()).requests += 1;
        report.latency_us.saturating_record(micros(asked.elapsed()));
        Ok(())
    }

    fn ended(&self) {
        self.shared.report().second(self.shared.began.elapsed()).ended += 1;
    }

    /// Once it is known which server answers.
    fn count_for_server(&mut self) {
        if !self.counted
            && let Some(server) = &self.connection.server
        {
            self.counted = true;
            *self.shared.report().by_server.entry(server.clone()).or_default() += 1;
        }
    }

    /// Counts the connection for its server, and as broken if it is.
    fn answered(&mut self, answer: Result<(), Break>) -> Result<(), Break> {
        self.count_for_server();
        answer.inspect_err(|how| {
            let server = self.connection.server.clone();
            note(self.shared, *how, self.since.elapsed(), self.download, server);
        })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.count_for_server();
        self.shared.report().open -= 1;
    }
}

fn note(shared: &Shared, how: Break, age: Duration, download: bool, server: Option<String>) {
    let at = shared.began.elapsed();
    let mut report = shared.report();
    report.second(at).broken += 1;
    report.broken.push(BrokenConnection { at, age, how, download, server });
}

/// An exponential time of this mean.
fn exponential(rng: &mut impl Rng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - rng.random::<f64>()).ln())
}
