//! Network namespaces that end with whoever made them, even if that is killed.
//!
//! A guard, a shell that does nothing but read from a pipe, removes them when the pipe closes: because
//! they are dropped, or because the process is gone. Should the guard be killed as well, the next run
//! removes what it left: names carry the id of the process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::NetError;

/// What all names begin with.
const PREFIX: &str = "plt";
/// Where programs and maps of these namespaces are pinned.
const BPFFS: &str = "/sys/fs/bpf";
/// Where `ip netns` keeps them.
const NETNS: &str = "/run/netns";
/// Whether addresses are probed for duplicates (RFC 4862, 5.4). While a link-local one is, some of what asks for
/// a neighbour is not sent, and what waits for the answer leaves a second late, with the clock of then.
const ACCEPT_DAD: [&str; 2] = ["net.ipv6.conf.all.accept_dad", "net.ipv6.conf.default.accept_dad"];
/// Not there on a kernel without IPv6.
const IPV6: &str = "/proc/sys/net/ipv6";
/// Ends what runs in namespaces ($4…), all but its owner ($1), and removes them and the trees $2 and $3.
const REMOVE: &str = "owner=$1 pins=$2 dir=$3; shift 3; for name; do \
                      ip netns pids \"$name\" | grep -vx \"$owner\" | xargs -r kill -9; \
                      ip netns del \"$name\"; done; rm -rf -- \"$pins\" \"$dir\"";
/// Does so when its pipe closes.
const GUARD: &str = "trap '' HUP INT TERM; read -r _";
/// The programs that networks are made with, and their packages.
const PROGRAMS: [(&str, &str); 3] =
    [("ip", "iproute2"), ("ethtool", "ethtool"), ("nginx", "nginx-light")];
/// Where programs of the system's own are, should PATH not name it.
const SBIN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether networks can be made here.
///
/// # Errors
/// Without root, or with a program missing: which, and how it is installed.
pub fn requirements() -> Result<(), NetError> {
    if !rustix::process::geteuid().is_root() {
        return Err(NetError::NotRoot);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> =
        std::env::split_paths(&path).chain(SBIN.map(PathBuf::from)).collect();
    let missing = PROGRAMS.iter().filter(|(name, _)| !places.iter().any(|p| p.join(name).exists()));
    let (programs, packages): (Vec<_>, Vec<_>) = missing.copied().unzip();
    if programs.is_empty() { Ok(()) } else { Err(NetError::Missing { programs, packages }) }
}

/// One end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct CableEnd<'a> {
    /// The namespace it is in.
    pub namespace: &'a str,
    /// The interface's name.
    pub interface: &'a str,
    /// Its MAC address, `02:00:00:00:01:01`.
    pub mac: &'a str,
    /// Its address and prefix, `10.0.1.1/24`.
    pub address: &'a str,
}

/// A namespace that any thread may enter.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Namespace {
    fn open(path: &Path) -> Result<Self, NetError> {
        let file = File::open(path);
        let file = file.map_err(NetError::system(format!("open {}", path.display())))?;
        Ok(Namespace(Arc::new(file)))
    }

    /// Moves this thread into it. Sockets belong to where they are made, wherever the thread goes later.
    ///
    /// # Errors
    /// Without the right to.
    pub fn enter(&self) -> Result<(), NetError> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| NetError::system("enter a namespace")(errno.into()))
    }
}

/// Namespaces with names of their own, a directory, and a place to pin; dropped, all of them are removed.
pub struct Namespaces {
    prefix: String,
    home: Namespace,
    dir: PathBuf,
    guard: Child,
    pipe: Option<ChildStdin>,
}

impl Namespaces {
    /// Makes these, with nothing but a loopback interface in each.
    ///
    /// # Errors
    /// When the system refuses one; none is left then.
    pub fn new(names: &[&str]) -> Result<Self, NetError> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{PREFIX}{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(&prefix);
        let full: Vec<String> = names.iter().map(|name| format!("{prefix}-{name}")).collect();
        // An earlier process may have had this process's id.
        remove(&prefix, full.iter().filter(|name| Path::new(NETNS).join(name).exists()));
        let home = Namespace::open(Path::new("/proc/thread-self/ns/net"))?;
        let mut guard = Command::new("sh");
        guard.arg("-c").arg(format!("{GUARD}; {REMOVE}")).arg("plimsoll-guard");
        removal(&mut guard, &prefix, &full).stdin(Stdio::piped());
        let guard = guard.process_group(0).spawn();
        let mut guard = guard.map_err(NetError::system("start sh"))?;
        let pipe = guard.stdin.take();
        let net = Namespaces { prefix, home, dir, guard, pipe };
        fs::create_dir(&net.dir).map_err(NetError::system("make a directory"))?;
        let made: Vec<String> = full
            .iter()
            .map(|name| format!("ip netns add {name} && ip -n {name} link set lo up"))
            .collect();
        shell(&made.join(" && "))?;
        let keys: &[&str] = if Path::new(IPV6).exists() { &ACCEPT_DAD } else { &[] };
        for (name, key) in names.iter().flat_map(|name| keys.iter().map(move |key| (name, key))) {
            net.set_sysctl(name, key, "0")?;
        }
        Ok(net)
    }

    /// The kernel's name of a namespace.
    pub fn full(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Where to pin programs and maps.
    pub fn pins(&self) -> PathBuf {
        Path::new(BPFFS).join(&self.prefix)
    }

    /// A directory for what runs in them.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One of them.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn namespace(&self, name: &str) -> Result<Namespace, NetError> {
        Namespace::open(&Path::new(NETNS).join(self.full(name)))
    }

    /// Moves this thread into one of them.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn enter(&self, name: &str) -> Result<(), NetError> {
        self.namespace(name)?.enter()
    }

    /// Moves this thread back to where they were made.
    ///
    /// # Errors
    /// Without the right to.
    pub fn leave(&self) -> Result<(), NetError> {
        self.home.enter()
    }

    /// What a function does on a thread that is in one of them.
    ///
    /// # Errors
    /// When it does not exist, or the system refuses a thread.
    ///
    /// # Panics
    /// When the function does.
    pub fn inside<T: Send>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, NetError> {
        let namespace = self.namespace(name)?;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new();
            let body = move || namespace.enter().map(|()| work());
            let thread = thread.spawn_scoped(scope, body);
            let thread = thread.map_err(NetError::system("start a thread"))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a program in one of them: from its first instruction on it is there, and ends with them. Not
    /// by `ip netns exec`, which would hide bpffs.
    ///
    /// # Errors
    /// When the namespace does not exist, or the program cannot be started.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Child, NetError> {
        let what = format!("start {}", command.get_program().display());
        self.inside(name, || command.spawn())?.map_err(NetError::system(what))
    }

    /// What a program that runs in one of them says until it ends; nothing is typed at it.
    ///
    /// # Errors
    /// When the namespace does not exist, or the program cannot be started.
    pub fn output(&self, name: &str, command: &mut Command) -> Result<Output, NetError> {
        let what = format!("run {}", command.get_program().display());
        self.inside(name, || command.stdin(Stdio::null()).output())?.map_err(NetError::system(what))
    }

    /// Runs a shell's line in one of them.
    ///
    /// # Errors
    /// When it does not succeed.
    pub fn run(&self, name: &str, line: &str) -> Result<Output, NetError> {
        succeeded(line, self.output(name, Command::new("sh").arg("-c").arg(line))?)
    }

    /// Sets a value under `/proc/sys`, `net.ipv4.tcp_timestamps` for example.
    ///
    /// # Errors
    /// When there is no such value, or it may not be set to this.
    pub fn set_sysctl(&self, name: &str, key: &str, value: &str) -> Result<(), NetError> {
        let file = Path::new("/proc/sys").join(key.replace('.', "/"));
        self.inside(name, || fs::write(file, value))?
            .map_err(NetError::system(format!("set {key} to {value}")))
    }

    /// Lays a cable between two of them, and puts both ends up.
    ///
    /// # Errors
    /// When an interface or an address is taken.
    pub fn cable(&self, one: CableEnd, two: CableEnd) -> Result<(), NetError> {
        let end = |end: CableEnd| {
            let CableEnd { namespace, interface, mac, .. } = end;
            format!("{interface} netns {} address {mac}", self.full(namespace))
        };
        let up = |end: CableEnd| {
            let full = self.full(end.namespace);
            let CableEnd { interface, address, .. } = end;
            // An address that is probed for duplicates first cannot be used for a second.
            let family = if address.contains(':') { "nodad" } else { "" };
            format!(
                "ip -n {full} addr add {address} dev {interface} {family} && ip -n {full} link set \
                 {interface} up"
            )
        };
        let link = format!("ip link add {} type veth peer name {}", end(one), end(two));
        shell(&format!("{link} && {} && {}", up(one), up(two)))?;
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Whoever made them must not be inside when they go.
        let _ = self.leave();
        drop(self.pipe.take());
        // A guard that was killed has removed nothing; the next run does.
        let _ = self.guard.wait();
    }
}

/// The arguments of [`REMOVE`].
fn removal<'a>(
    command: &'a mut Command,
    prefix: &str,
    full: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> &'a mut Command {
    command.arg(std::process::id().to_string());
    command.arg(Path::new(BPFFS).join(prefix)).arg(std::env::temp_dir().join(prefix));
    command.args(full).stdout(Stdio::null()).stderr(Stdio::null())
}

fn remove(prefix: &str, full: impl IntoIterator<Item = impl AsRef<OsStr>>) {
    let mut command = Command::new("sh");
    command.arg("-c").arg(REMOVE).arg("sh");
    // What cannot be removed shows when its name is wanted.
    let _ = removal(&mut command, prefix, full).status();
}

/// Removes what processes that are gone have left.
fn sweep() {
    for place in [Path::new(NETNS), Path::new(BPFFS), &std::env::temp_dir()] {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let mut words = name.strip_prefix(PREFIX).unwrap_or_default().splitn(3, '-');
            let (Some(id), Some(number)) = (words.next(), words.next()) else { continue };
            let gone = |id: u32| !Path::new(&format!("/proc/{id}")).exists();
            if id.parse().is_ok_and(gone) && number.parse::<u32>().is_ok() {
                let is_namespace = place == Path::new(NETNS);
                remove(&format!("{PREFIX}{id}-{number}"), is_namespace.then_some(&name));
            }
        }
    }
}

/// Runs a shell's line.
fn shell(line: &str) -> Result<Output, NetError> {
    let output = Command::new("sh").arg("-c").arg(line).stdin(Stdio::null()).output();
    succeeded(line, output.map_err(NetError::system("run sh"))?)
}

fn succeeded(line: &str, output: Output) -> Result<Output, NetError> {
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(NetError::Command { command: line.to_owned(), said })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn root() -> bool {
        let met = requirements();
        if let Err(why) = &met {
            eprintln!("skipped: {why}");
        }
        met.is_ok()
    }

    fn exists(full: &str) -> bool {
        Path::new(NETNS).join(full).exists()
    }

    fn gone(full: &str) -> bool {
        let until = Instant::now() + PATIENCE;
        while exists(full) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        !exists(full)
    }

    #[test]
    fn dropped_they_end_with_what_runs_in_them() {
        if !root() {
            return;
        }
        let net = Namespaces::new(&["a", "b"]).unwrap();
        let (a, b, dir) = (net.full("a"), net.full("b"), net.dir().to_owned());
        let mut sleeper = net.spawn("a", Command::new("sleep").arg("60")).unwrap();
        assert!(exists(&a) && exists(&b) && dir.is_dir());
        drop(net);
        assert!(!sleeper.wait().unwrap().success(), "killed");
        assert!(!exists(&a) && !exists(&b) && !dir.exists());
    }

    #[test]
    fn namespaces_end_with_their_owner_even_if_never_dropped() {
        if !root() {
            return;
        }
        let mut net = Namespaces::new(&["a"]).unwrap();
        // What the kernel does when the process is killed.
        drop(net.pipe.take());
        assert!(gone(&net.full("a")));
    }

    #[test]
    fn what_a_killed_process_and_its_guard_left_is_swept() {
        if !root() {
            return;
        }
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let (id, mine) = (dead.id(), std::process::id());
        let (left, kept) = (format!("{PREFIX}{id}-7-a"), format!("{PREFIX}{mine}-sweep-a"));
        shell(&format!("ip netns add {left} && ip netns add {kept}")).unwrap();
        let tree = std::env::temp_dir().join(format!("{PREFIX}{id}-7"));
        fs::create_dir(&tree).unwrap();
        sweep();
        let (left, kept_is_there) = (exists(&left), exists(&kept));
        shell(&format!("ip netns del {kept}")).unwrap();
        assert!(!left && kept_is_there && !tree.exists());
    }

    #[test]
    fn a_thread_inside_sees_what_is_there_and_others_do_not() {
        if !root() {
            return;
        }
        let net = Namespaces::new(&["a", "b"]).unwrap();
        let end =
            |namespace, interface, mac, address| CableEnd { namespace, interface, mac, address };
        net.cable(
            end("a", "x0", "02:00:00:00:00:01", "10.7.0.1/24"),
            end("b", "y0", "02:00:00:00:00:02", "10.7.0.2/24"),
        )
        .unwrap();
        net.set_sysctl("a", "net.ipv4.tcp_timestamps", "2").unwrap();
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").unwrap();
        assert_eq!(net.inside("a", read).unwrap(), "2\n");
        assert_eq!(net.inside("b", read).unwrap(), "1\n");
        let listener =
            net.inside("a", || std::net::TcpListener::bind("10.7.0.1:7")).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&address, PATIENCE).is_ok();
        assert!(net.inside("b", connect).unwrap());
        assert!(net.set_sysctl("a", "net.ipv4.no_such_value", "1").is_err());
        let error = net.run("a", "echo why >&2; false").unwrap_err().to_string();
        assert_eq!(error, "`echo why >&2; false`: why");
    }
}
