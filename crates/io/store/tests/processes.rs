//! What happens between processes: two controllers on one store, one that is killed, one that runs
//! out of room.

mod common;

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{last_number, numbered, open, place};
use plimsoll_store::{Batch, Store, StoreError};

const TASK: &str = "PLIMSOLL_STORE_TEST_TASK";
const PATH: &str = "PLIMSOLL_STORE_TEST_PATH";

/// This test binary again, doing a task; it says `at N` whenever it got to step N.
struct Helper {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    fn start(mut command: Command, task: &str, path: &Path) -> Self {
        command.env(TASK, task).env(PATH, path).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Helper { child, lines }
    }

    fn arguments() -> [&'static str; 4] {
        ["--exact", "helper", "--ignored", "--nocapture"]
    }

    fn plain() -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(Self::arguments());
        command
    }

    /// The next step it got to, if it goes on.
    fn step(&mut self) -> Option<u64> {
        self.lines.find_map(|line| line.unwrap().strip_prefix("at ")?.parse().ok())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "does the tasks of the tests below, in a process of its own"]
fn helper() {
    let path = std::env::var_os(PATH).expect("only started by the tests below");
    let store = open(Path::new(&path)).unwrap();
    match std::env::var(TASK).unwrap().as_str() {
        "hold" => {
            println!("at 0");
            loop {
                std::thread::park();
            }
        }
        "write" => write_for_ever(&store),
        "fill" => fill(&store),
        other => panic!("unknown task {other}"),
    }
}

fn write_for_ever(store: &Store) {
    for n in last_number(store).unwrap_or(0) + 1.. {
        store.write(&numbered(n)).unwrap();
        // Some commits stay in memory, so that the kill finds the file in every state.
        if n % 3 == 0 {
            store.flush().unwrap();
            println!("at {n}");
        }
    }
}

/// Writes until there is no room, and looks whether the store survives it.
fn fill(store: &Store) {
    for n in 1..=10 {
        store.write(&numbered(n)).unwrap();
    }
    store.flush().unwrap();
    let mut filler = 0_u64;
    let error = loop {
        let mut batch = Batch::new();
        batch.memory(&format!("filler {filler}"), vec![7; 100_000]);
        match store.write(&batch).and_then(|()| store.flush()) {
            Ok(()) => filler += 1,
            Err(error) => break error,
        }
        assert!(filler < 10_000, "there is no limit");
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("no room to write"), "{error}");
    assert_eq!(last_number(store), Some(10), "what was there can be read");
    let big = |n: u8| {
        let mut batch = Batch::new();
        batch.memory("big", vec![n; 3_000_000]);
        batch
    };
    for n in 0..5 {
        let again = store.write(&big(n)).and_then(|()| store.flush());
        assert!(matches!(again, Err(StoreError::Full { .. })), "{again:?}");
        assert_eq!(last_number(store), Some(10));
    }
    println!("at {filler}");
}

#[test]
fn a_second_controller_is_refused_with_the_holder_of_the_store_until_the_holder_dies() {
    let (_dir, path) = place();
    let mut first = Helper::start(Helper::plain(), "hold", &path);
    assert_eq!(first.step(), Some(0));
    let before = std::fs::read(&path).unwrap();
    let error = open(&path).unwrap_err();
    let StoreError::InUse { holder: Some(holder), .. } = &error else { panic!("{error:?}") };
    assert_eq!((holder.pid, holder.api.as_str()), (first.child.id(), "127.0.0.1:7400"));
    let text = error.to_string();
    let part = format!("state: is in use by process {} on {} since 2", holder.pid, holder.host);
    assert!(text.contains(&part) && text.ends_with("Z (its API: 127.0.0.1:7400)"), "{text}");
    // Under another name it is the same store.
    let link = path.with_file_name("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(open(&link), Err(StoreError::InUse { .. })));
    assert!(std::fs::read(&path).unwrap() == before);

    first.kill();
    let second = open(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::InUse { .. })), "also within one process");
    drop(second);
    drop(open(&path).unwrap());
}

#[test]
fn a_kill_loses_nothing_that_was_flushed() {
    let (_dir, path) = place();
    let mut at_least = 0;
    for round in 1..=8 {
        let mut writer = Helper::start(Helper::plain(), "write", &path);
        for _ in 0..round {
            at_least = writer.step().unwrap();
        }
        writer.kill();
        let store = open(&path).unwrap();
        let found = last_number(&store).unwrap();
        assert!(found >= at_least, "round {round}: {found} < {at_least}");
    }
}

#[test]
fn a_kill_while_the_store_is_made_leaves_none_or_a_good_one() {
    for round in 0..20 {
        let (_dir, path) = place();
        let writer = Helper::start(Helper::plain(), "write", &path);
        std::thread::sleep(std::time::Duration::from_millis(round));
        writer.kill();
        let store = open(&path).unwrap();
        assert!(last_number(&store).is_none_or(|n| n > 0));
    }
}

#[test]
fn without_room_the_store_stays_readable_and_recovers() {
    let (_dir, path) = place();
    // A limit on the size of files is a full disk that needs no privilege. 6 MiB in blocks of 512.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 12288; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).args(Helper::arguments());
    let mut helper = Helper::start(command, "fill", &path);
    let fillers = helper.step();
    let status = helper.child.wait().unwrap();
    assert!(status.success());
    let fillers = fillers.unwrap();
    assert!(fillers > 5, "{fillers}");

    let store = open(&path).unwrap();
    assert_eq!(last_number(&store), Some(10));
    for filler in 0..fillers {
        let bytes = store.load_memory(&format!("filler {filler}")).unwrap().unwrap();
        assert!(bytes == [7; 100_000], "{filler}");
    }
    store.write(&numbered(11)).unwrap();
    assert_eq!(last_number(&store), Some(11));
}
