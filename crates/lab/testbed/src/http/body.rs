//! Where a message's body ends (RFC 9112 §6–7).

use super::ProtocolError;

/// How the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, of which an empty one is the last.
    Chunked,
    /// The end of the connection ends it.
    UntilClose,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Done,
    Length(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailer,
    UntilClose,
}

/// Reads a body piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Body(State);

impl Body {
    /// Expects a body that ends so.
    pub fn new(framing: Framing) -> Self {
        Body(match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        })
    }

    /// Whether all of it has been read.
    pub fn is_done(&self) -> bool {
        matches!(self.0, State::Done)
    }

    /// Whether the end of the connection is its rightful end.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.0, State::UntilClose)
    }

    /// Takes what it can of `bytes`, hands the content to `sink`, and returns how much it took. What is
    /// left over belongs to the next message, or must come again with more behind it.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let step = match self.0 {
                State::Done => return Ok(taken),
                State::Length(left) => {
                    self.content(rest, left, State::Length, State::Done, &mut sink)
                }
                State::ChunkData(left) => {
                    self.content(rest, left, State::ChunkData, State::ChunkEnd, &mut sink)
                }
                State::UntilClose => {
                    sink(rest);
                    rest.len()
                }
                State::ChunkSize => self.chunk_size(rest)?,
                State::ChunkEnd => self.line(rest, State::ChunkSize, State::ChunkSize)?,
                State::Trailer => self.line(rest, State::Done, State::Trailer)?,
            };
            if step == 0 {
                return Ok(taken);
            }
            taken += step;
        }
    }

    fn content(
        &mut self,
        bytes: &[u8],
        left: u64,
        more: fn(u64) -> State,
        end: State,
        sink: &mut impl FnMut(&[u8]),
    ) -> usize {
        let n = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        sink(&bytes[..n]);
        let left = left - n as u64;
        self.0 = if left == 0 { end } else { more(left) };
        n
    }

    fn chunk_size(&mut self, bytes: &[u8]) -> Result<usize, ProtocolError> {
        match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Complete((n, size))) => {
                self.0 = if size == 0 { State::Trailer } else { State::ChunkData(size) };
                Ok(n)
            }
            Ok(httparse::Status::Partial) => Ok(0),
            Err(_) => Err(ProtocolError("bad chunk size")),
        }
    }

    /// One line: `empty` is the state after an empty one, `other` after any other.
    fn line(&mut self, bytes: &[u8], empty: State, other: State) -> Result<usize, ProtocolError> {
        let Some(end) = bytes.iter().position(|b| *b == b'\n') else { return Ok(0) };
        let is_empty = matches!(&bytes[..end], b"" | b"\r");
        if matches!(self.0, State::ChunkEnd) && !is_empty {
            return Err(ProtocolError("chunk longer than its size"));
        }
        self.0 = if is_empty { empty } else { other };
        Ok(end + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of `step` bytes, as they would arrive, and returns content and leftover.
    fn read(framing: Framing, text: &[u8], step: usize) -> Result<(Vec<u8>, usize), ProtocolError> {
        let (mut body, mut content, mut pending) = (Body::new(framing), Vec::new(), Vec::new());
        for piece in text.chunks(step) {
            pending.extend_from_slice(piece);
            let n = body.feed(&pending, |c| content.extend_from_slice(c))?;
            pending.drain(..n);
        }
        assert!(body.is_done() || framing == Framing::UntilClose);
        Ok((content, pending.len()))
    }

    #[test]
    fn finds_the_end_whatever_the_pieces() {
        let chunked = b"4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\nA: b\r\n\r\nGET";
        for step in [1, 2, 3, 7, 100] {
            assert_eq!(read(Framing::Chunked, chunked, step), Ok((b"wikipedia".to_vec(), 3)));
            assert_eq!(read(Framing::Length(4), b"wikiHTTP", step), Ok((b"wiki".to_vec(), 4)));
            assert_eq!(read(Framing::UntilClose, b"wiki", step), Ok((b"wiki".to_vec(), 0)));
            assert_eq!(read(Framing::Length(0), b"GET", step), Ok((vec![], 3)));
        }
    }

    #[test]
    fn refuses_what_is_not_chunked() {
        assert!(read(Framing::Chunked, b"zz\r\n", 10).is_err());
        assert!(read(Framing::Chunked, b"1\r\nabc\r\n", 10).is_err());
    }
}
