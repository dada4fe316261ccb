//! Bytes that came and are not used yet.

use std::io::{self, Read};

/// Space at first, doubled when a head needs more.
const FIRST: usize = 2 * 1024;

/// A head or chunk line longer than this is refused.
const MOST: usize = 64 * 1024;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Bytes, and there may be more.
    More,
    /// Bytes, and there are no more for now.
    Drained,
    /// Nothing for now.
    Blocked,
    /// The other side will send nothing more.
    Closed,
    /// There is no room: what came makes no sense so far, and is too long.
    Full,
}

/// Bytes that a connection has brought, for a parser that needs whole heads.
#[derive(Debug, Default)]
pub struct Inbox {
    space: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// What came and was not consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.space[self.start..self.end]
    }

    /// Drops the first `n` bytes.
    pub fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<Fill> {
        if self.end == self.space.len() {
            if self.start > 0 {
                self.space.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else if self.space.len() >= MOST {
                return Ok(Fill::Full);
            } else {
                self.space.resize((self.space.len() * 2).max(FIRST), 0);
            }
        }
        let room = self.space.len() - self.end;
        loop {
            match from.read(&mut self.space[self.end..]) {
                Ok(0) => return Ok(Fill::Closed),
                Ok(n) => {
                    self.end += n;
                    // A short read has emptied the socket: the next bytes ring again (epoll(7), Q9).
                    return Ok(if n < room { Fill::Drained } else { Fill::More });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Fill::Blocked),
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_not_consumed_and_refuses_too_much() {
        let mut inbox = Inbox::default();
        let mut source: &[u8] = b"hello world";
        assert_eq!(inbox.fill(&mut source).unwrap(), Fill::Drained);
        inbox.consume(6);
        assert_eq!(inbox.bytes(), b"world");
        assert_eq!(inbox.fill(&mut source).unwrap(), Fill::Closed);

        let endless = vec![b'x'; 2 * MOST];
        let mut source = &endless[..];
        let mut last = Fill::More;
        while last == Fill::More {
            last = inbox.fill(&mut source).unwrap();
        }
        assert_eq!(last, Fill::Full);
        assert_eq!(inbox.bytes().len(), MOST);
        assert!(inbox.bytes().starts_with(b"worldxx"));
    }
}
