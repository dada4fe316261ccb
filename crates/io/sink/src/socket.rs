//! What is found where a balancer's socket should be.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why no balancer answers at a path that is not a socket: connecting to it is refused, as to a socket without a
/// listener. `None` where the failure has another cause.
pub(crate) fn not_a_socket(path: Option<&Path>, failure: &io::Error) -> Option<String> {
    let refused = failure.kind() == io::ErrorKind::ConnectionRefused;
    let found = path.filter(|_| refused)?.metadata().ok()?.file_type();
    let what = match found {
        kind if kind.is_socket() => return None,
        kind if kind.is_dir() => "a directory",
        kind if kind.is_file() => "a plain file",
        _ => "something else",
    };
    Some(format!("that is {what}, and no socket"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn only_paths_that_are_not_sockets_are_explained() {
        let dir = std::env::temp_dir().join(format!("plimsoll-no-socket-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let (file, left, gone) = (dir.join("file"), dir.join("left"), dir.join("gone"));
        std::fs::write(&file, "").expect("written");
        // A socket stays when its listener has gone.
        drop(UnixListener::bind(&left).expect("bound"));
        let said = |path: &Path| {
            let refused = UnixStream::connect(path).expect_err("nobody listens");
            not_a_socket(Some(path), &refused)
        };
        let found = [&dir, &file, &left, &gone].map(|path| said(path));
        std::fs::remove_dir_all(&dir).expect("removed");
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            some("that is a directory, and no socket"),
            some("that is a plain file, and no socket"),
            None,
            None,
        ];
        assert_eq!(found, expected);
    }
}
