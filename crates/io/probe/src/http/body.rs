use crate::failure::Failure;

/// Bytes of chunk sizes, extensions and trailers that are read beyond as many as the longest body
/// has: without a bound, a gigabyte of framing could carry a body of one byte.
const FRAMING_ALLOWANCE: usize = 16 * 1024;

/// The longest line of chunked framing, bytes: a size with its extensions, or a trailer field.
const MAX_LINE: usize = 4 * 1024;

/// What of a body is still to come (RFC 9112 §6, §7).
#[derive(Debug)]
pub(crate) enum Body {
    /// So many bytes.
    Length(u64),
    /// Chunks and trailers.
    Chunked(Chunked),
    /// All that comes until the server closes.
    UntilClose,
}

/// Where in a chunked body the next byte belongs.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: ChunkState,
    /// The line that is being read, without its end.
    line: Vec<u8>,
    framing: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

/// Where body bytes go: counted always, kept only when a text will be looked for in them.
#[derive(Debug)]
pub(crate) struct BodySink {
    received: usize,
    max: usize,
    kept: Option<Vec<u8>>,
}

impl BodySink {
    pub fn new(max: usize, keep: bool) -> Self {
        BodySink { received: 0, max, kept: keep.then(Vec::new) }
    }

    /// What was kept; empty when nothing was to be.
    pub fn kept(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    fn room(&self) -> usize {
        self.max - self.received
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() > self.room() {
            return Err(self.too_long());
        }
        self.received += bytes.len();
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn too_long(&self) -> Failure {
        Failure::body(format!("the body is longer than {} bytes", self.max))
    }
}

impl Body {
    pub fn empty() -> Self {
        Body::Length(0)
    }

    pub fn of_length(length: u64) -> Self {
        Body::Length(length)
    }

    pub fn chunked() -> Self {
        Body::Chunked(Chunked { state: ChunkState::Size, line: Vec::new(), framing: 0 })
    }

    /// Whether nothing more is to come. A body until close is never done: its end is the connection's.
    pub fn done(&self) -> bool {
        match self {
            Body::Length(left) => *left == 0,
            Body::Chunked(chunked) => chunked.state == ChunkState::Done,
            Body::UntilClose => false,
        }
    }

    /// Fails at once when the length that was announced is more than the sink takes.
    pub fn check_length(&self, sink: &BodySink) -> Result<(), Failure> {
        match self {
            Body::Length(left) if *left > sink.room() as u64 => Err(sink.too_long()),
            _ => Ok(()),
        }
    }

    /// How many bytes it is worth reading now: at most one more than the sink still takes.
    pub fn appetite(&self, sink: &BodySink) -> usize {
        let over = sink.room().saturating_add(1);
        match self {
            Body::Length(left) => usize::try_from(*left).unwrap_or(over).min(over),
            Body::Chunked(chunked) => over + chunked.framing_left(sink),
            Body::UntilClose => over,
        }
    }

    /// Takes bytes from the connection; returns how many belonged to the body.
    pub fn feed(&mut self, input: &[u8], sink: &mut BodySink) -> Result<usize, Failure> {
        match self {
            Body::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                sink.push(&input[..take])?;
                *left -= take as u64;
                Ok(take)
            }
            Body::Chunked(chunked) => chunked.feed(input, sink),
            Body::UntilClose => {
                sink.push(input)?;
                Ok(input.len())
            }
        }
    }
}

impl Chunked {
    fn framing_left(&self, sink: &BodySink) -> usize {
        sink.max.saturating_add(FRAMING_ALLOWANCE).saturating_sub(self.framing)
    }

    fn feed(&mut self, input: &[u8], sink: &mut BodySink) -> Result<usize, Failure> {
        let mut used = 0;
        while used < input.len() && self.state != ChunkState::Done {
            let rest = &input[used..];
            if let ChunkState::Data(left) = self.state {
                let take = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                sink.push(&rest[..take])?;
                used += take;
                self.state = match left - take as u64 {
                    0 => ChunkState::DataEnd,
                    left => ChunkState::Data(left),
                };
            } else {
                used += self.feed_line(rest, sink)?;
            }
        }
        Ok(used)
    }

    /// Takes bytes up to the end of the line, and acts on the line when it is whole.
    fn feed_line(&mut self, rest: &[u8], sink: &BodySink) -> Result<usize, Failure> {
        let end = memchr::memchr(b'\n', rest);
        let taken = end.map_or(rest.len(), |at| at + 1);
        if taken > self.framing_left(sink) || self.line.len() + taken > MAX_LINE {
            return Err(Failure::body("the framing of the body is longer than is read"));
        }
        self.framing += taken;
        self.line.extend_from_slice(&rest[..taken]);
        if end.is_some() {
            self.state = self.after_line(sink)?;
            self.line.clear();
        }
        Ok(taken)
    }

    fn after_line(&self, sink: &BodySink) -> Result<ChunkState, Failure> {
        let bare = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let empty = bare.is_empty() || bare == b"\r";
        match self.state {
            // `parse_chunk_size` takes a line without any digit for a 0.
            ChunkState::Size if !bare.first().is_some_and(u8::is_ascii_hexdigit) => {
                Err(Failure::protocol("not the size of a chunk"))
            }
            ChunkState::Size => match httparse::parse_chunk_size(&self.line) {
                Ok(httparse::Status::Complete((_, 0))) => Ok(ChunkState::Trailer),
                Ok(httparse::Status::Complete((_, size))) => {
                    // A chunk too long for the sink need not be waited for.
                    Body::Length(size).check_length(sink)?;
                    Ok(ChunkState::Data(size))
                }
                _ => Err(Failure::protocol("not the size of a chunk")),
            },
            ChunkState::DataEnd if empty => Ok(ChunkState::Size),
            ChunkState::DataEnd => Err(Failure::protocol("a chunk is longer than its size")),
            ChunkState::Trailer if empty => Ok(ChunkState::Done),
            ChunkState::Trailer if bare.contains(&b':') => Ok(ChunkState::Trailer),
            ChunkState::Trailer => Err(Failure::protocol("not a trailer field")),
            state @ (ChunkState::Data(_) | ChunkState::Done) => Ok(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::FailureKind;

    /// Feeds the bytes in pieces; returns the body, what was left over, and whether it was done.
    fn decode(
        mut body: Body,
        bytes: &[u8],
        piece: usize,
        max: usize,
    ) -> Result<(Vec<u8>, usize, bool), Failure> {
        let mut sink = BodySink::new(max, true);
        let mut used = 0;
        for part in bytes.chunks(piece) {
            let mut taken = 0;
            while taken < part.len() && !body.done() {
                taken += body.feed(&part[taken..], &mut sink)?;
            }
            used += taken;
        }
        Ok((sink.kept().to_vec(), bytes.len() - used, body.done()))
    }

    const CHUNKS: &[u8] = b"4;ext=\"x\"\r\nWiki\r\n5\r\npedia\r\nC\r\n in\r\n\r\nchunk\r\n0\r\n\
        Expires: never\r\nA: b\r\n\r\nHTTP";

    #[test]
    fn chunks_come_out_whole_however_they_are_cut() {
        for piece in 1..CHUNKS.len() {
            let (body, left, done) = decode(Body::chunked(), CHUNKS, piece, 100).expect("valid");
            assert_eq!(body, b"Wikipedia in\r\n\r\nchunk", "{piece}");
            assert_eq!((left, done), (4, true), "{piece}");
        }
        let (_, left, done) = decode(Body::chunked(), &CHUNKS[..30], 7, 100).expect("valid");
        assert_eq!((left, done), (0, false));
    }

    #[test]
    fn broken_chunks_are_protocol_failures() {
        for bytes in [
            "x\r\n",
            "-1\r\n",
            "\r\n",
            "3\r\nabcd\r\n",
            "0\r\nno trailer\r\n",
            "fffffffffffffffff\r\n",
        ] {
            let failure = decode(Body::chunked(), bytes.as_bytes(), 1, 100).expect_err(bytes);
            assert_eq!(failure.kind, FailureKind::Protocol, "{bytes}");
        }
    }

    #[test]
    fn no_body_costs_more_than_its_bound() {
        let kind = |body, bytes: &[u8]| decode(body, bytes, 9, 10).map_err(|f| f.kind).err();
        assert_eq!(kind(Body::UntilClose, &[b'x'; 10]), None);
        assert_eq!(kind(Body::UntilClose, &[b'x'; 11]), Some(FailureKind::Body));
        assert_eq!(kind(Body::chunked(), b"a\r\n0123456789\r\n0\r\n\r\n"), None);
        assert_eq!(kind(Body::chunked(), b"b\r\n"), Some(FailureKind::Body));
        assert_eq!(
            kind(Body::chunked(), b"8\r\n01234567\r\n3\r\n012\r\n"),
            Some(FailureKind::Body)
        );
        let sink = BodySink::new(10, false);
        assert!(Body::of_length(10).check_length(&sink).is_ok());
        assert!(Body::of_length(11).check_length(&sink).is_err());
        assert_eq!(Body::of_length(11).appetite(&sink), 11);
        assert_eq!(Body::of_length(u64::MAX).appetite(&sink), 11);
    }

    #[test]
    fn a_body_of_framing_alone_is_bounded() {
        let line = [&b"1;"[..], &vec![b'x'; MAX_LINE]].concat();
        let failure = decode(Body::chunked(), &line, 100, 10).expect_err("a line without end");
        assert_eq!(failure.kind, FailureKind::Body);
        let trailers = [&b"0\r\n"[..], &b"a: b\r\n".repeat(FRAMING_ALLOWANCE)].concat();
        let failure = decode(Body::chunked(), &trailers, 100, 10).expect_err("trailers for ever");
        assert_eq!(failure.kind, FailureKind::Body);
    }

    #[test]
    fn a_body_of_known_length_ends_there() {
        let (body, left, done) = decode(Body::of_length(3), b"abcd", 2, 10).expect("valid");
        assert_eq!((&body[..], left, done), (&b"abc"[..], 1, true));
    }
}
