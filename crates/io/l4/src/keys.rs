//! The secrets of cookies, in a file that balancers of one VIP share.
//!
//! ```text
//! # Plimsoll L4 keys. Whoever reads this file can aim connections at a server.
//! epoch 0
//! since 1763700000000
//! salt 0 <64 hexadecimal digits>
//! salt 1 <64 hexadecimal digits>
//! spread <64 hexadecimal digits>
//! ```
//!
//! `since` is when the epoch took or takes over, in Unix milliseconds: every balancer that reads the file changes
//! at the same time, each server's connections when that server's clock passes its next version boundary.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use plimsoll_cookie::Epoch;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::L4Error;

/// Of a file's mode: anybody but its owner.
pub(crate) const OTHERS: u32 = 0o077;

/// The secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The epoch of new cookies.
    pub epoch: Epoch,
    /// Since when, in Unix milliseconds.
    pub since_unix_ms: u64,
    /// By epoch; the other epoch's may still be in connections.
    pub salts: [Option<[u8; 32]>; 2],
    /// For what has no cookie.
    pub spread: [u8; 32],
}

/// Without the secrets: what is printed is logged.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("epoch", &self.epoch)
            .field("since_unix_ms", &self.since_unix_ms)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// New secrets from the kernel's randomness.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn generate(now_unix_ms: u64) -> Result<Self, std::io::Error> {
        Ok(Keys {
            epoch: Epoch::Even,
            since_unix_ms: now_unix_ms,
            salts: [Some(random()?), None],
            spread: random()?,
        })
    }

    /// The keys after a rotation that takes effect at `at_unix_ms`.
    ///
    /// # Errors
    /// When the kernel gives no randomness.
    pub fn rotated(&self, at_unix_ms: u64) -> Result<Self, std::io::Error> {
        let epoch = self.epoch.other();
        let mut salts = self.salts;
        salts[epoch.bit() as usize] = Some(random()?);
        Ok(Keys { epoch, since_unix_ms: at_unix_ms, salts, spread: self.spread })
    }

    /// The same keys with another salt for the epoch, which nothing may carry yet.
    ///
    /// # Errors
    /// When the kernel gives no randomness.
    pub fn with_new_salt(&self) -> Result<Self, std::io::Error> {
        let mut salts = self.salts;
        salts[self.epoch.bit() as usize] = Some(random()?);
        Ok(Keys { salts, ..self.clone() })
    }

    /// Reads a file; `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read or understood, or that others than its owner can read or write.
    pub fn load(path: &Path) -> Result<Option<Self>, L4Error> {
        let unread = |error: std::io::Error| wrong(path, format!("cannot be read: {error}"));
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let mode = file.metadata().map_err(unread)?.permissions().mode() & 0o777;
        if mode & OTHERS != 0 {
            let error = format!(
                "others have access (mode 0{mode:o}; expected 0600), and whoever knows the secrets can aim \
                 connections at a server: chmod 600, and new secrets if somebody may have read them"
            );
            return Err(wrong(path, error));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unread)?;
        Keys::parse(&text).map(Some).map_err(|error| wrong(path, error))
    }

    /// Reads a file; makes one that only its owner can read where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, made or understood.
    pub fn load_or_create(path: &Path, now_unix_ms: u64) -> Result<Self, L4Error> {
        if let Some(keys) = Keys::load(path)? {
            return Ok(keys);
        }
        let keys = Keys::generate(now_unix_ms).map_err(|error| wrong(path, error.to_string()))?;
        keys.save(path)?;
        Ok(keys)
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), L4Error> {
        let failed = |error: std::io::Error| wrong(path, format!("cannot be written: {error}"));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let draft = path.with_extension("new");
        let _ = fs::remove_file(&draft);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .map_err(failed)?;
        file.write_all(self.to_text().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&draft, path).map_err(failed)
    }

    fn to_text(&self) -> String {
        let mut text =
            "# Plimsoll L4 keys. Whoever reads this file can aim connections at a server.\n"
                .to_owned();
        let _ = writeln!(text, "epoch {}\nsince {}", self.epoch.bit(), self.since_unix_ms);
        for (epoch, salt) in self.salts.iter().enumerate() {
            if let Some(salt) = salt {
                let _ = writeln!(text, "salt {epoch} {}", to_hex(salt));
            }
        }
        let _ = writeln!(text, "spread {}", to_hex(&self.spread));
        text
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut epoch, mut since, mut spread) = (None, None, None);
        let mut salts = [None, None];
        for (number, line) in text.lines().enumerate() {
            // What stands there may be a secret.
            let expected = |what: &str| format!("line {}: expected {what}", number + 1);
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [] => {}
                [word, ..] if word.starts_with('#') => {}
                ["epoch", "0"] => epoch = Some(Epoch::Even),
                ["epoch", "1"] => epoch = Some(Epoch::Odd),
                ["since", ms] => {
                    since = Some(ms.parse().map_err(|_| expected("since MILLISECONDS"))?);
                }
                ["salt", which @ ("0" | "1"), hex] => {
                    let salt = from_hex(hex).ok_or_else(|| expected("64 hexadecimal digits"))?;
                    salts[usize::from(which == "1")] = Some(salt);
                }
                ["spread", hex] => {
                    spread = Some(from_hex(hex).ok_or_else(|| expected("64 hexadecimal digits"))?);
                }
                _ => return Err(expected("epoch, since, salt or spread")),
            }
        }
        let epoch = epoch.ok_or("expected a line `epoch 0` or `epoch 1`")?;
        if salts[epoch.bit() as usize].is_none() {
            return Err(format!("expected a line `salt {}`, the epoch's own", epoch.bit()));
        }
        Ok(Keys {
            epoch,
            since_unix_ms: since.ok_or("expected a line `since MILLISECONDS`")?,
            salts,
            spread: spread.ok_or("expected a line `spread`")?,
        })
    }
}

fn wrong(path: &Path, error: String) -> L4Error {
    L4Error::KeyFile { path: path.to_owned(), error }
}

fn random() -> Result<[u8; 32], std::io::Error> {
    let mut bytes = [0; 32];
    // Requests of up to 256 bytes are never cut short.
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes)
}

fn to_hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_file_and_rotate() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sub/l4.key");
        let made = Keys::load_or_create(&path, 5).expect("made");
        assert_eq!(Keys::load_or_create(&path, 9).expect("read"), made);
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = made.rotated(77).expect("random");
        next.save(&path).expect("written");
        assert_eq!(Keys::load_or_create(&path, 9).expect("read"), next);
        assert_eq!((next.epoch, next.since_unix_ms), (Epoch::Odd, 77));
        assert_eq!(next.salts[0], made.salts[0]);
        assert_ne!(next.salts[1], made.salts[0]);
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_line() {
        let good = Keys::generate(1).expect("random").to_text();
        for (bad, says) in [
            (good.replace("epoch 0", "epoch 2"), "line 2: expected epoch"),
            (good.replace("epoch 0", "epoch 1"), "expected a line `salt 1`"),
            (good.replace("since 1", "since x"), "line 3: expected since"),
            (good.replace("salt 0 ", "salt 0 zz"), "line 4: expected 64"),
            (String::new(), "expected a line `epoch"),
        ] {
            let error = Keys::parse(&bad).expect_err(says);
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn key_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("l4.key");
        let made = Keys::load_or_create(&path, 5).expect("made");
        for mode in [0o644, 0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let refused = Keys::load(&path).expect_err("others can read it").to_string();
            assert!(refused.contains(&format!("mode 0{mode:o}; expected 0600")), "{refused}");
            assert!(Keys::load_or_create(&path, 9).is_err(), "nor are others made");
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(Keys::load(&path).expect("read").as_ref(), Some(&made));
        }
    }

    #[test]
    fn errors_about_a_damaged_file_show_no_secret() {
        let good = Keys::generate(1).expect("random").to_text();
        let secret = good.lines().find_map(|line| line.strip_prefix("salt 0 ")).expect("a salt");
        for bad in [
            good.replace("salt 0 ", "salt 0 zz"),
            good.replace("salt 0 ", "slat 0 "),
            good.replace("salt 0 ", "salt 0\n"),
            good.replace("spread ", "epoch "),
        ] {
            let error = Keys::parse(&bad).expect_err("damaged");
            let shown = |text: &str| error.contains(text);
            assert!(!shown(&secret[..8]), "{error}");
            let spread = good.lines().last().expect("a line").rsplit(' ').next().expect("digits");
            assert!(!shown(&spread[..8]), "{error}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let mut keys = Keys::generate(1).expect("random").rotated(2).expect("random");
        keys.spread = [201; 32];
        keys.salts = [Some([202; 32]), Some([203; 32])];
        let shown = format!("{keys:?}");
        assert!(shown.contains("since_unix_ms: 2"), "{shown}");
        assert!(["201", "202", "203"].iter().all(|byte| !shown.contains(byte)), "{shown}");
    }
}
