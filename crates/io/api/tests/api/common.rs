//! A made-up service, and a server and client over real loopback sockets.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_api::Hub;
use plimsoll_control::{
    Advice, BackendState, BackendView, CurveView, Phase, PlanView, ServiceView,
};
use plimsoll_model::{Hyperbola, MethodKind, Objective};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A service of two backends.
pub fn shop(name: &str) -> ServiceView {
    let backend = |backend: &str, weight, share, state| BackendView {
        backend: backend.to_owned(),
        weight,
        share,
        programmed: Some(weight),
        state,
        latency_ms: Some(30.0),
        expected_ms: None,
        asked_rps: 0.0,
        asked_part: None,
        error_share: 0.0,
        check_interval_s: None,
        cause: None,
        reason: "packed".to_owned(),
    };
    ServiceView {
        service: name.to_owned(),
        method: MethodKind::Split,
        method_name: "roundrobin".to_owned(),
        phase: Phase::Steady,
        epoch: 12,
        rate_rps: 400.0,
        latency_ms: Some(34.5),
        drain_s: Some(2.5),
        trouble: None,
        backends: vec![
            backend("s1", 192, 0.75, BackendState::Ready),
            backend("s2", 64, 0.25, BackendState::Exploring),
        ],
        plan: PlanView {
            probed: false,
            told_by: None,
            epoch: 12,
            reason: "curves changed".to_owned(),
            objective: Objective::Traffic,
            expected_ms: Some(33.0),
            bound_ms: Some(33.0),
            gap: Some(0.0),
            proven: true,
            rate_rps: 400.0,
            capacity_rps: 800.0,
            advice: Some(Advice {
                method: "leastconn".to_owned(),
                expected_ms: 27.0,
                present_ms: 33.0,
                gain: 0.18,
            }),
            several_cost: None,
            subsets_cost: None,
        },
        curves: vec![CurveView {
            backend: "s1".to_owned(),
            family: "hyperbola".to_owned(),
            l0_ms: 20.0,
            capacity_rps: 600.0,
            capacity_is_lower_bound: true,
            cores: 4.0,
            capacity_error: f64::INFINITY,
            cv_error: Some(0.03),
            hyperbola: Some(Hyperbola { a: 18_000.0, b: 1.2e6, c: 600.0 }),
            points: vec![(300.0, 22.0, 500.0)],
            line: vec![(0.0, 20.0), (300.0, 22.0), (600.0, f64::INFINITY)],
        }],
    }
}

/// A running server; it stops when dropped.
pub struct Server {
    /// Where it listens.
    pub at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
}

impl Server {
    /// Serves this hub on a free loopback port.
    pub async fn start(hub: Hub) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(plimsoll_api::serve(listener, hub, async {
            let _ = stopped.await;
        }));
        Server { at, stop: Some(stop), task: Some(task) }
    }

    /// Asks it to stop and waits until it has.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        let task = self.task.take().expect("not stopped yet");
        task.await.expect("no panic").expect("no error");
    }

    /// Sends these bytes and reads until the server closes.
    pub async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.at).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("in time").expect("read");
        String::from_utf8(answer).expect("text")
    }

    /// One request with this method and `Host`.
    pub async fn ask(&self, method: &str, path: &str, host: &str) -> Answer {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        Answer::parse(&self.raw(&request).await)
    }

    /// `GET path`
    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &self.at.to_string()).await
    }
}

/// An answer taken apart.
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its head in small letters.
    pub head: String,
    /// Its body.
    pub body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}
