use plimsoll_model::Method;

use super::link::LinkError;
use super::{AccessLevel, HaproxySink, method, snapshot};
use crate::SinkError;

/// HAProxy's answer when it has no such backend.
const NO_BACKEND: &[u8] = b"Can't find backend.";

impl HaproxySink {
    /// Polls HAProxy: one write, one read. A kept connection that was cut, or that leads to a process
    /// which a reload has replaced, is opened anew once.
    pub(super) async fn refresh(&mut self) -> Result<(), SinkError> {
        if self.link.is_open() {
            match self.poll().await {
                Err(LinkError::Cut(_)) => {}
                Err(error) => return Err(self.link.error(error)),
                Ok(()) => {
                    self.take_poll().await?;
                    if !self.snapshot.process.stopping {
                        return Ok(());
                    }
                }
            }
        }
        self.open().await?;
        self.poll().await.map_err(|error| self.link.error(error))?;
        self.take_poll().await?;
        if self.snapshot.process.stopping {
            self.link.close();
            return Err(SinkError::Unreachable {
                socket: self.link.address().to_string(),
                reason: "HAProxy is stopping".to_owned(),
                source: None,
            });
        }
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), LinkError> {
        self.link.exchange(&self.poll).await.map(|_| ())
    }

    /// Takes over the answers of the poll.
    async fn take_poll(&mut self) -> Result<(), SinkError> {
        let answers = self.link.answers();
        if answers.get(snapshot::STATE) == NO_BACKEND {
            return Err(self.unknown_backend().await);
        }
        let known = self.snapshot.backend_id;
        if let Err(reason) = self.snapshot.read(&self.backend, answers) {
            self.link.close();
            return Err(self.protocol(reason));
        }
        if self.snapshot.backend_id != known {
            self.poll = snapshot::poll(&self.backend, self.snapshot.backend_id);
        }
        Ok(())
    }

    /// Connects, and learns what stays the same for the life of the connection: what the socket
    /// allows and the backend's number.
    async fn open(&mut self) -> Result<(), SinkError> {
        self.method = None;
        let result = async {
            self.link.open().await?;
            let lines = format!("show cli level\nshow servers state {}\n", self.backend);
            self.link.exchange(&lines).await.map(|_| ())
        };
        result.await.map_err(|error| self.link.error(error))?;
        let answers = self.link.answers();
        self.level = AccessLevel::parse(answers.get(0));
        if answers.get(1) == NO_BACKEND {
            return Err(self.unknown_backend().await);
        }
        if let Err(reason) = self.snapshot.read_state(answers.get(1)) {
            self.link.close();
            return Err(self.protocol(reason));
        }
        self.poll = snapshot::poll(&self.backend, self.snapshot.backend_id);
        Ok(())
    }

    async fn unknown_backend(&mut self) -> SinkError {
        let exist = match self.link.exchange("show backend\n").await {
            Err(error) => return self.link.error(error),
            Ok(answers) => answers
                .text(0)
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect(),
        };
        // The next call starts from the beginning: a reload may have brought the backend.
        self.link.close();
        SinkError::UnknownBackend { backend: self.backend.clone(), exist }
    }

    /// All servers that are steered must exist.
    pub(super) fn require_servers(&self) -> Result<(), SinkError> {
        let missing: Vec<String> = self
            .servers
            .iter()
            .enumerate()
            .filter(|(hint, (_, name))| self.snapshot.row(*hint, name).is_none())
            .map(|(_, (_, name))| name.clone())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (backend, exist) = (self.backend.clone(), self.snapshot.names());
        Err(SinkError::UnknownServers { backend, missing, exist })
    }

    /// How the backend picks; asked for once per connection, and again when its name changes.
    pub(super) async fn learn_method(&mut self) -> Result<Method, SinkError> {
        let algo = &self.snapshot.algo;
        if let Some((learned_from, method)) = &self.method
            && learned_from == algo
        {
            return Ok(method.clone());
        }
        if algo.is_empty() {
            return Err(self.too_low("user", "operator to observe and admin to steer"));
        }
        let algo = algo.clone();
        let method = match method::from_algo(&algo) {
            method::Known::Method(method) => method,
            method::Known::Hash(name) => self.ask_hash(name).await?,
        };
        self.method = Some((algo, method.clone()));
        Ok(method)
    }

    async fn ask_hash(&mut self, name: String) -> Result<Method, SinkError> {
        let server = self.snapshot.rows.first().map_or("s", |row| row.name.as_str());
        let question = method::question(&self.backend, server);
        match self.link.exchange(&question).await {
            Ok(answers) => Ok(method::from_answer(name, answers.get(0))),
            Err(error) => Err(self.link.error(error)),
        }
    }

    /// The error for a socket whose level is too low.
    pub(super) fn too_low(&self, level: &str, needed: &str) -> SinkError {
        SinkError::Permission {
            socket: self.link.address().to_string(),
            reason: format!(
                "it has level {level}, and needs level {needed}: write `stats socket … level admin` \
                 in haproxy.cfg"
            ),
        }
    }
}
