//! What is found where a balancer's socket should be.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why nobody can be reached at a path that is no socket: connecting to it is refused, as to a socket that nobody
/// listens on. The reason, or the failure as it was.
pub(crate) fn no_socket(path: Option<&Path>, source: io::Error) -> Result<String, io::Error> {
    let refused = source.kind() == io::ErrorKind::ConnectionRefused;
    let there = path.filter(|_| refused).and_then(|path| path.metadata().ok());
    let what = match there.map(|there| there.file_type()) {
        None => return Err(source),
        Some(kind) if kind.is_socket() => return Err(source),
        Some(kind) if kind.is_dir() => "a directory",
        Some(kind) if kind.is_file() => "a plain file",
        Some(_) => "something else",
    };
    Ok(format!("that is {what}, and no socket"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn what_is_no_socket_is_said_to_be_none() {
        let dir = std::env::temp_dir().join(format!("plimsoll-no-socket-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let (file, left, gone) = (dir.join("file"), dir.join("left"), dir.join("gone"));
        std::fs::write(&file, "").expect("written");
        // A socket stays when its listener has gone.
        drop(UnixListener::bind(&left).expect("bound"));
        let said = |path: &Path| {
            let refused = UnixStream::connect(path).expect_err("nobody listens");
            no_socket(Some(path), refused).ok()
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
