//! `plimsoll run` as a child process, and what one can ask it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PATIENCE, arg, out, plimsoll, signal, until};

pub struct Daemon {
    child: Child,
    api: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts it; what it logs is added to `log`.
    pub fn spawn(config: &Path, api: SocketAddr, log: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["run", "--config", arg(config)]).args(arguments);
        Self::start(command, api, log)
    }

    /// The same with a bound on the length of its files, in blocks of 512 bytes; a write beyond is an
    /// error, and no signal.
    pub fn spawn_limited(config: &Path, api: SocketAddr, log: &Path, blocks: u64) -> Self {
        let script = "trap '' XFSZ; ulimit -f $1; exec \"$0\" run --config \"$2\"";
        let mut command = Command::new("sh");
        command.args([
            "-c",
            script,
            env!("CARGO_BIN_EXE_plimsoll"),
            &blocks.to_string(),
            arg(config),
        ]);
        Self::start(command, api, log)
    }

    /// The same with another limit of open files: `-Sn 100` for the soft one, `-n 100` for both.
    pub fn spawn_with_files(config: &Path, api: SocketAddr, log: &Path, limit: &str) -> Self {
        let script = format!("ulimit {limit}; exec \"$0\" run --config \"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_plimsoll"), arg(config)]);
        Self::start(command, api, log)
    }

    fn start(mut command: Command, api: SocketAddr, log: &Path) -> Self {
        let file = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Self::start_as_it_is(&mut command, api, log)
    }

    /// Starts a command that says itself where standard output and standard error go.
    pub fn start_as_it_is(command: &mut Command, api: SocketAddr, log: &Path) -> Self {
        let child = command.spawn().expect("start plimsoll");
        Daemon { child, api: format!("http://{api}"), log: log.to_owned() }
    }

    pub fn api(&self) -> &str {
        &self.api
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn wait_until_it_answers(&mut self) {
        assert!(self.answers_before_it_ends(), "plimsoll ended at once: {}", self.log());
    }

    /// Waits until it answers, or ends without having done so.
    pub fn answers_before_it_ends(&mut self) -> bool {
        let mut running = true;
        until("the daemon to answer", || {
            running = self.is_running();
            !running || self.http("/healthz").0 == 200
        });
        running
    }

    /// Status and body of a GET; status 0 when nothing answers.
    pub fn http(&self, path: &str) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build()
            .into();
        match agent.get(format!("{}{path}", self.api)).call() {
            Ok(mut answer) => {
                let body = answer.body_mut().read_to_string().unwrap_or_default();
                (answer.status().as_u16(), body)
            }
            Err(_) => (0, String::new()),
        }
    }

    /// What a command that asks the daemon says, as JSON.
    pub fn ask(&self, command: &str) -> Value {
        self.ask_with(command, &[])
    }

    fn ask_with(&self, command: &str, more: &[&str]) -> Value {
        let output = plimsoll(&[&[command, "--api", &self.api, "-o", "json"], more].concat());
        assert!(output.status.success(), "{command}: {output:?}");
        serde_json::from_str(&out(&output)).expect("JSON")
    }

    /// What `status` says is wrong with the first service; empty where nothing is.
    pub fn trouble(&self) -> String {
        let status = self.ask("status");
        status["services"][0]["trouble"].as_str().unwrap_or_default().to_owned()
    }

    /// The only service, as `weights` shows it.
    pub fn weights(&self) -> Value {
        self.ask("weights")["services"][0].clone()
    }

    /// One backend of it; null where there is none of that name.
    pub fn backend(&self, name: &str) -> Value {
        let weights = self.weights();
        let mut backends = weights["backends"].as_array().into_iter().flatten();
        backends.find(|b| b["backend"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Whether some event of this kind says this.
    pub fn has_event(&self, kind: &str, reason: &str) -> bool {
        !self.events(kind, reason).is_empty()
    }

    /// The backends of all events of this kind that say this, oldest first; an empty name for the whole service.
    pub fn events(&self, kind: &str, reason: &str) -> Vec<String> {
        let all = self.ask_with("events", &["--limit", "1000"]);
        let events = all["services"][0]["events"].clone();
        let is_it = |event: &&Value| {
            event["kind"] == kind
                && event["reason"].as_str().is_some_and(|why| why.contains(reason))
        };
        let named = |event: &Value| event["backend"].as_str().unwrap_or_default().to_owned();
        events.as_array().into_iter().flatten().filter(is_it).map(named).collect()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its log has this: a thread of its own writes it, a moment after what it says.
    pub fn until_log_has(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in the log: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for its end.
    pub fn end(mut self) -> ExitStatus {
        let mut ended = None;
        until("plimsoll to end", || {
            ended = self.child.try_wait().expect("wait for plimsoll");
            ended.is_some()
        });
        ended.expect("it has ended")
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait for plimsoll").is_none()
    }

    /// Ends it as a crash of the machine would.
    pub fn kill(mut self) {
        self.child.kill().expect("kill plimsoll");
        self.child.wait().expect("wait for plimsoll");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
