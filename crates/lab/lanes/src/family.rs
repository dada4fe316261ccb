//! Child processes that cannot outlive whoever started them.
//!
//! One guard, a shell that does nothing but read from a pipe, leads a process group that every other
//! child joins. The pipe's other end is ours alone: when it closes, because the run is over, panicked or
//! was killed outright, the guard ends the whole group and removes the run's directory. Only a signal to
//! the guard itself could defeat that, and it ignores the usual ones.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::LaneError;

/// Reads until the pipe closes; then those that can end orderly may, and the rest must.
const GUARD: &str = "trap '' HUP INT TERM; read -r _; kill -TERM 0; sleep 0.1; \
                     rm -rf -- \"$1\"; kill -KILL 0";
/// How long a process may take to end orderly.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How often to look whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How much of what a process wrote is repeated when it fails, bytes.
const TAIL: usize = 600;

/// The processes of one run, and the directory they work in. Dropping it ends all and removes all.
pub struct Family {
    guard: Child,
    pipe: Option<ChildStdin>,
    dir: PathBuf,
}

impl Family {
    /// A new directory under the system's place for temporary files, and the guard.
    ///
    /// # Errors
    /// When the system refuses either.
    pub fn start() -> Result<Self, LaneError> {
        let dir = tempfile::Builder::new()
            .prefix("plimsoll-")
            .tempdir()
            .map_err(LaneError::system("make a temporary directory"))?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARD).arg("plimsoll-guard").arg(dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = command.process_group(0).spawn();
        let mut guard = guard.map_err(LaneError::system("start sh"))?;
        let pipe = guard.stdin.take();
        // From here on the guard removes it, however this process ends.
        Ok(Family { guard, pipe, dir: dir.keep() })
    }

    /// Where the run's files live.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a member; what it writes goes to a file of its name in [`Family::dir`].
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such program, and whatever else the system says.
    pub fn spawn(&self, name: &str, command: &mut Command) -> io::Result<Member> {
        let log = self.dir.join(format!("{name}.log"));
        let out = OpenOptions::new().create(true).append(true).open(&log)?;
        command.stdout(out.try_clone()?).stderr(out);
        let group = i32::try_from(self.guard.id()).map_err(io::Error::other)?;
        let child = command.process_group(group).spawn()?;
        Ok(Member { name: name.to_owned(), child, log })
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // A guard that is gone has nothing left to guard.
        let _ = self.guard.wait();
    }
}

/// One process; killed when dropped.
pub struct Member {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Member {
    /// That it has ended, if it has, with its last words.
    pub fn ended(&mut self) -> Option<LaneError> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(LaneError::Ended {
            name: self.name.clone(),
            how: status.to_string(),
            said: self.last_words(),
        })
    }

    /// Waits until it is ready, for so long at most.
    ///
    /// # Errors
    /// When it has ended by then, or is not.
    pub(crate) fn wait_until(
        &mut self,
        within: Duration,
        is_ready: impl Fn() -> io::Result<()>,
    ) -> Result<(), LaneError> {
        let until = Instant::now() + within;
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            match is_ready() {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() > until => {
                    return Err(LaneError::Mute { name: self.name.clone(), why: why.to_string() });
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Its standard input, where the command asked for a pipe; once.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Asks it to end; one that does not within five seconds is killed.
    pub fn end(mut self) {
        // One that has ended already cannot be asked.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + END_WITHIN;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned();
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!(":\n{text}") }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    fn sleeper(family: &Family) -> Member {
        family.spawn("sleeper", Command::new("sleep").arg("60").stdin(Stdio::null())).unwrap()
    }

    #[test]
    fn members_end_with_the_family_even_if_never_dropped() {
        let family = Family::start().unwrap();
        let dir = family.dir().to_owned();
        let member = sleeper(&family);
        let pid = member.child.id();
        // As if this process had been killed: nothing of ours runs but the pipe's end.
        std::mem::forget(member);
        assert!(dir.is_dir() && alive(pid));
        drop(family);
        let end = Instant::now() + Duration::from_secs(5);
        while alive(pid) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!alive(pid) && !dir.exists());
    }

    #[test]
    fn a_member_ends_when_dropped_and_the_others_go_on() {
        let family = Family::start().unwrap();
        let (first, mut second) = (sleeper(&family), sleeper(&family));
        let pid = first.child.id();
        drop(first);
        assert!(!alive(pid));
        assert!(second.ended().is_none() && alive(second.child.id()));
    }

    #[test]
    fn a_member_may_end_orderly() {
        let family = Family::start().unwrap();
        let file = family.dir().join("saved");
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "trap 'touch \"$1\"; exit' TERM; touch \"$1.ready\"; while :; do sleep 0.01; done",
        ]);
        shell.arg("sh").arg(&file).stdin(Stdio::null());
        let member = family.spawn("saver", &mut shell).unwrap();
        let pid = member.child.id();
        while !family.dir().join("saved.ready").exists() {
            std::thread::sleep(LOOK_EVERY);
        }
        member.end();
        assert!(!alive(pid) && file.exists());
    }

    #[test]
    fn the_last_words_of_the_dead_are_reported() {
        let family = Family::start().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo no such port >&2; exit 3"]).stdin(Stdio::null());
        let mut member = family.spawn("balancer", &mut shell).unwrap();
        member.child.wait().unwrap();
        let message = member.ended().unwrap().to_string();
        assert_eq!(message, "balancer has ended (exit status: 3):\nno such port");
        let missing = family.spawn("x", &mut Command::new("no-such-program-here"));
        assert_eq!(missing.err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
