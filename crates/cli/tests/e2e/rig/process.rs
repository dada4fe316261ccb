//! An emulated backend in a process of its own, to be stopped and killed as real ones are.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{free_address, signal, until};

/// The environment variable with the name and address of the backend.
const BACKEND: &str = "PLIMSOLL_TEST_BACKEND";

pub struct ServerProcess {
    pub name: String,
    pub address: SocketAddr,
    child: Child,
}

impl ServerProcess {
    /// A backend of one core that takes 5 ms for a request.
    pub fn start(name: String) -> Self {
        let address = free_address();
        let child = spawn(&name, address);
        let server = ServerProcess { name, address, child };
        server.wait_until_it_listens();
        server
    }

    /// `STOP`, `CONT` and so on.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("kill a backend");
        self.child.wait().expect("wait for a backend");
    }

    /// Starts what [`ServerProcess::kill`] ended, at the same address.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.name, self.address);
        self.wait_until_it_listens();
    }

    fn wait_until_it_listens(&self) {
        until("a backend to listen", || TcpStream::connect(self.address).is_ok());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This very program, as the helper below or by [`serve_if_asked`].
fn spawn(name: &str, address: SocketAddr) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "rig::process::helper", "--ignored"]);
    command.env(BACKEND, format!("{name} {address}"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("start a backend")
}

/// Serves for as long as the program that has started this process lives, if it was started as a backend.
pub fn serve_if_asked() {
    let Ok(asked) = std::env::var(BACKEND) else { return };
    // Also while it is stopped.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let (name, address) = asked.split_once(' ').expect("a name and an address");
    let service = Service::exponential(Duration::from_millis(5));
    let listen = address.parse().expect("an address");
    let backend = BackendSpec { listen, ..BackendSpec::new(name, service) };
    let bed = Testbed::start(TestbedSpec { admin: None, backends: vec![backend] });
    let _bed = bed.expect("a backend");
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
#[test]
#[ignore = "a backend of the other tests, in a process of its own"]
fn helper() {
    serve_if_asked();
}
