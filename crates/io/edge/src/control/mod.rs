//! Control between forwarder and nodes: the forwarder asks ten times a second, nodes answer with what their
//! services have done. UDP; every message is authenticated by a key that both have in a file (HMAC-SHA256).
//!
//! A node does what a question says (whose packets it takes) only where the question repeats the number that the
//! node drew when it started, is newer than the last one, and is of no forwarder that another one has followed: an
//! old question played back does nothing ([`Followed`]). Where the forwarder is, too, is in the question under its tag; the
//! address that it came from says nothing. A forwarder takes an answer only to a question that it has just asked.

mod agreement;
mod followed;

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::EdgeError;
pub(crate) use agreement::agreement;
pub(crate) use followed::Followed;

const TAG_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
/// Messages fit one datagram: a node of 64 places takes some 8 KiB.
pub(crate) const MOST_BYTES: usize = 60_000;

/// What can be sealed. The kind is under the tag: an answer is never taken for a question.
pub(crate) trait Message: Serialize + DeserializeOwned {
    const KIND: &'static [u8];
}

impl Message for Ask {
    const KIND: &'static [u8] = b"plimsoll edge ask\0";
}

impl Message for Answer {
    const KIND: &'static [u8] = b"plimsoll edge answer\0";
}

/// The key of control.
#[derive(Clone, Debug)]
pub struct Key(hmac::Key);

impl Key {
    /// Reads the key file: 64 hexadecimal digits.
    ///
    /// # Errors
    /// When it is not there, is none, or others than its owner may read it.
    pub fn load(path: &Path) -> Result<Key, EdgeError> {
        let failed = |error: std::io::Error| {
            let hint = "`plimsoll edge key --config FILE` makes one; every node needs the same";
            EdgeError::key(path, format!("{error}; {hint}"))
        };
        let meta = fs::metadata(path).map_err(failed)?;
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(EdgeError::key(
                path,
                "others than its owner may read it; expected mode 0600",
            ));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let bytes = from_hex(text.trim()).filter(|bytes| bytes.len() == KEY_BYTES);
        let bytes = bytes.ok_or_else(|| EdgeError::key(path, "expected 64 hexadecimal digits"))?;
        Ok(Key::of(&bytes))
    }

    /// Makes a key file, unless there is one.
    ///
    /// # Errors
    /// When there is one, or it cannot be written.
    pub fn create(path: &Path) -> Result<(), EdgeError> {
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| EdgeError::key(path, "no random numbers"))?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| EdgeError::key(path, error))?;
        }
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(|error| EdgeError::key(path, error))?;
        std::io::Write::write_all(&mut file, format!("{text}\n").as_bytes())
            .map_err(|error| EdgeError::key(path, error))
    }

    fn of(bytes: &[u8]) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// A message with its tag.
    pub(crate) fn seal<T: Message>(&self, message: &T) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(message).expect("numbers and text");
        let tag = hmac::sign(&self.0, &[T::KIND, &bytes].concat());
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }

    /// The message, where its tag is right.
    pub(crate) fn open<T: Message>(&self, bytes: &[u8]) -> Option<T> {
        let (message, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG_BYTES)?)?;
        hmac::verify(&self.0, &[T::KIND, message].concat(), tag).ok()?;
        serde_json::from_slice(message).ok()
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A number that cannot be guessed, for a start of a daemon.
pub(crate) fn draw() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers nothing else of the kernel's works either.
    SystemRandom::new().fill(&mut bytes).expect("random numbers");
    u64::from_le_bytes(bytes)
}

/// A forwarder's question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// Drawn when the forwarder started.
    pub(crate) forwarder: u64,
    /// Where it takes packets from nodes.
    pub(crate) address: Ipv4Addr,
    /// One more with each question.
    pub(crate) sequence: u64,
    /// What the node drew when it started, where that is known.
    pub(crate) node: Option<u64>,
    /// [`agreement`] of its configuration about this node.
    pub(crate) agreement: String,
}

/// What a service did on a core since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlaceReport {
    pub(crate) cpu: u32,
    pub(crate) service: usize,
    /// Time that its thread ran.
    pub(crate) busy_ns: u64,
    /// Packets handed to its functions.
    pub(crate) packets: u64,
    /// What a packet cost in the burst at the start; 0: it was not measured.
    pub(crate) calibrated_ns: f64,
}

/// A node's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// As in the question.
    pub(crate) forwarder: u64,
    pub(crate) sequence: u64,
    /// Drawn when the node started.
    pub(crate) node: u64,
    pub(crate) agreement: String,
    /// The node's clock when it counted, nanoseconds.
    pub(crate) clock_ns: u64,
    pub(crate) places: Vec<PlaceReport>,
    /// Packets that it did not hand to a service, by reason.
    pub(crate) reasons: Vec<(String, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_believed_only_with_the_same_key() {
        let (key, other) = (Key::of(&[1; 32]), Key::of(&[2; 32]));
        let ask = Ask {
            forwarder: 1,
            address: Ipv4Addr::LOCALHOST,
            sequence: 2,
            node: Some(3),
            agreement: "x".to_owned(),
        };
        let mut sealed = key.seal(&ask);
        assert_eq!(key.open::<Ask>(&sealed).expect("opened").sequence, 2);
        assert!(other.open::<Ask>(&sealed).is_none(), "another key");
        sealed[3] ^= 1;
        assert!(key.open::<Ask>(&sealed).is_none(), "changed on the way");
        let answer = Answer {
            forwarder: 1,
            sequence: 2,
            node: 3,
            agreement: "x".to_owned(),
            clock_ns: 4,
            places: Vec::new(),
            reasons: Vec::new(),
        };
        let sealed = key.seal(&answer);
        assert_eq!(key.open::<Answer>(&sealed).expect("opened").node, 3);
        assert!(key.open::<Ask>(&sealed).is_none(), "another kind");
        // The kind is under the tag, whatever the keys are.
        let body = serde_json::to_vec(&ask).expect("JSON");
        let tag = hmac::sign(&key.0, &[Answer::KIND, &body].concat());
        assert!(key.open::<Ask>(&[&body, tag.as_ref()].concat()).is_none(), "another kind");
        assert!(key.open::<Ask>(&[0; 31]).is_none() && key.open::<Ask>(&[]).is_none());
    }

    #[test]
    fn a_key_file_is_made_once_and_must_be_private() {
        let dir = std::env::temp_dir().join(format!("plimsoll-edge-key-{}", std::process::id()));
        let path = dir.join("edge.key");
        Key::create(&path).expect("made");
        Key::load(&path).expect("read");
        assert!(Key::create(&path).is_err(), "not over one that is there");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(Key::load(&path).unwrap_err().to_string().contains("0600"));
        fs::remove_dir_all(dir).expect("removed");
    }
}
