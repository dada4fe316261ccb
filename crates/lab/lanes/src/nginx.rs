//! nginx in front of one lane.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::haproxy::Server;
use crate::listener::{free_address, wait_until_it_listens};
use crate::program::{find, places};
use crate::section::server_timeout;
use crate::{Family, LaneError, Member};

/// Where nginx keeps what does not fit into memory; a directory that is not named would be the system's own.
const TEMPORARY: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

/// Lines of an nginx that keeps its temporary files in this directory.
pub fn nginx_temporary_paths(dir: &Path) -> String {
    let dir = dir.display();
    TEMPORARY.map(|name| format!("    {name}_temp_path {dir}/{name};\n")).concat()
}

/// A running nginx; killed when dropped.
pub struct Nginx {
    member: Member,
    address: SocketAddr,
}

impl Nginx {
    /// Starts one for these servers, and returns when it listens. `method` is a line of its `upstream`, such as
    /// `least_conn;`; empty for its round robin.
    ///
    /// # Errors
    /// When it is not installed, or ends at once.
    pub fn start(
        family: &Family,
        name: &str,
        method: &str,
        servers: &[Server],
        patience: Duration,
    ) -> Result<Self, LaneError> {
        let program = find("nginx", places()).ok_or(LaneError::NotInstalled {
            name: "nginx",
            hint: "on Debian and Ubuntu: apt-get install nginx-light",
        })?;
        let dir = family.dir().join(name);
        std::fs::create_dir_all(&dir).map_err(LaneError::system("make nginx's directory"))?;
        let address = free_address()?;
        let file = dir.join("nginx.conf");
        let text = configuration(&dir, address, method, servers, patience);
        std::fs::write(&file, text).map_err(LaneError::system("write nginx's configuration"))?;
        let mut command = Command::new(program);
        command.args(["-e", "stderr", "-p"]).arg(&dir).arg("-c").arg(&file).stdin(Stdio::null());
        let member = family.spawn(name, &mut command);
        let mut member = member.map_err(LaneError::system("start nginx"))?;
        wait_until_it_listens(&mut member, address)?;
        Ok(Nginx { member, address })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// That it has ended, if it has.
    pub fn ended(&mut self) -> Option<LaneError> {
        self.member.ended()
    }
}

/// One worker, connections to servers kept, and no server taken out for its failures: as the others here.
fn configuration(
    dir: &Path,
    address: SocketAddr,
    method: &str,
    servers: &[Server],
    patience: Duration,
) -> String {
    let mut text = format!(
        "daemon off;
worker_processes 1;
pid {}/pid;
error_log stderr;
events {{ worker_connections 8000; }}
http {{
    access_log off;
    keepalive_requests 1000000;
{}    upstream pool {{
        {method}
",
        dir.display(),
        nginx_temporary_paths(dir)
    );
    for Server { address, weight, .. } in servers {
        let _ = writeln!(text, "        server {address} weight={weight} max_fails=0;");
    }
    let _ = write!(
        text,
        "        keepalive 256;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://pool;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $host;
            proxy_read_timeout {}s;
        }}
    }}
}}
",
        server_timeout(patience).as_secs()
    );
    text
}
