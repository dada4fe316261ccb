//! A real nginx that says its name in every answer: `/` is short, `/long` is a download at a steady rate.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Namespaces, NetError, SERVER_HEADER};

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look whether it does.
const BLINK: Duration = Duration::from_millis(5);
/// How much of its log is repeated when it fails, bytes.
const TAIL: usize = 400;

/// What `/long` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Its length.
    pub bytes: u64,
    /// How fast each one is sent.
    pub bytes_per_s: u64,
}

/// An nginx in a namespace; killed when dropped.
pub struct Nginx {
    child: Child,
}

impl Nginx {
    /// Starts one and waits until it listens.
    ///
    /// # Errors
    /// When it cannot be started, or does not listen.
    pub fn start(
        net: &Namespaces,
        name: &str,
        listen: SocketAddr,
        download: Download,
    ) -> Result<Self, NetError> {
        let dir = net.dir().join(name);
        let failed = || NetError::system(format!("make the files of {name}"));
        fs::create_dir_all(&dir).map_err(failed())?;
        // A file of zeroes that takes no room on the disk.
        File::create(dir.join("long"))
            .and_then(|file| file.set_len(download.bytes))
            .map_err(failed())?;
        let config = dir.join("nginx.conf");
        fs::write(&config, configuration(&dir, name, listen, download)).map_err(failed())?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&dir).arg("-e").arg(dir.join("log")).arg("-c").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not in the group that a terminal's Ctrl-C ends: connections are to be closed first.
        let nginx = Nginx { child: net.spawn(name, command.process_group(0))? };
        nginx.wait(net, name, listen, &dir.join("log"))
    }

    fn wait(
        mut self,
        net: &Namespaces,
        name: &str,
        listen: SocketAddr,
        log: &Path,
    ) -> Result<Self, NetError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if net.inside(name, || TcpStream::connect_timeout(&listen, PATIENCE).is_ok())? {
                return Ok(self);
            }
            if Instant::now() >= until || !matches!(self.child.try_wait(), Ok(None)) {
                let (name, address) = (format!("nginx of {name}"), listen.to_string());
                return Err(NetError::Mute { name, address, said: last_words(log) });
            }
            std::thread::sleep(BLINK);
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned();
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(":\n{text}") }
}

/// One process, which ends with whoever kills it; connections stay open for as long as clients like.
fn configuration(dir: &Path, name: &str, listen: SocketAddr, download: Download) -> String {
    let path = |file: &str| -> PathBuf { dir.join(file) };
    let (pid, bodies) = (path("pid"), path("bodies"));
    format!(
        "daemon off;\nmaster_process off;\npid {pid};\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n  access_log off;\n  client_body_temp_path {bodies};\n  sendfile on;\n  \
         keepalive_timeout 1h;\n  keepalive_requests 1000000000;\n  \
         server {{\n    listen {listen} backlog=4096;\n    root {root};\n    \
         add_header {SERVER_HEADER} {name};\n    \
         location = / {{ return 200 \"{name}\\n\"; }}\n    \
         location = /long {{ limit_rate {rate}; }}\n  }}\n}}\n",
        pid = pid.display(),
        bodies = bodies.display(),
        root = dir.display(),
        rate = download.bytes_per_s,
    )
}
