//! A process that removes the control groups of a run, however the run ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Reads until the pipe closes, which it does when the run ends, panics or is killed outright. Then it
/// kills what is left in the groups and removes them, for as long as 10 s.
const GUARD: &str = r#"trap '' HUP INT TERM
read -r _
tries=0
while [ $tries -lt 100 ]; do
    left=0
    for dir in "$@"; do
        [ -d "$dir" ] || continue
        left=1
        find "$dir" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
            kill -KILL "$pid" 2>/dev/null
        done
        find "$dir" -depth -type d -exec rmdir {} ';' 2>/dev/null
    done
    [ $left = 0 ] && exit 0
    sleep 0.1
    tries=$((tries + 1))
done
exit 1"#;

/// The guard; dropping it ends the run's groups and waits until they are gone.
pub(super) struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts one for these directories, with all that is in them.
    pub(super) fn start(dirs: &[PathBuf]) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARD).arg("plimsoll-cgroup-guard").args(dirs);
        // A group of its own: the terminal's signals are for the run.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        Ok(Guard { child, pipe })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // One that was killed has nothing left to say.
        let _ = self.child.wait();
    }
}
