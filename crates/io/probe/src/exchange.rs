use crate::conn::Conn;
use crate::failure::{Failure, Stage, Stop};
use crate::http::{Body, BodySink, Head, MAX_HEAD, parse_head};
use crate::probe::Probe;
use plimsoll_model::FailureKind;

/// The first read: most answers to a probe fit.
const FIRST_READ: usize = 4 * 1024;

/// How many 1xx answers are skipped before the final one.
const MAX_INTERIM: usize = 8;

/// A whole answer, or as much of one as its verdict needed.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Why it is no success.
    pub failure: Option<Failure>,
    /// Whether the connection can carry another request.
    pub reusable: bool,
}

/// An exchange without a complete answer.
#[derive(Debug)]
pub(crate) struct Broken {
    pub stop: Stop,
    /// Whether any byte had come.
    pub answered: bool,
}

/// Bytes that were read and not yet understood.
struct Window {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl Window {
    fn unread(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Reads up to `most` bytes behind those that are there. 0: the server closed.
    async fn fill(&mut self, conn: &mut Conn, most: usize) -> Result<usize, Stop> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.buf.len() {
            self.buf.resize(self.end.max(FIRST_READ) * 2, 0);
        }
        let end = self.buf.len().min(self.end.saturating_add(most));
        let read = conn.read(&mut self.buf[self.end..end]).await;
        let read = read.map_err(|e| Stop::from_io(Stage::Exchange, e))?;
        self.end += read;
        Ok(read)
    }
}

/// Sends the request and reads the answer. Waits for as long as the server likes: the caller sets the
/// time limit, and finds in `status` how far it came.
pub(crate) async fn exchange(
    conn: &mut Conn,
    request: &[u8],
    probe: &Probe,
    status: &mut Option<u16>,
) -> Result<Answer, Broken> {
    let broken = |stop, answered| Broken { stop, answered };
    if let Err(error) = conn.write_all(request).await {
        return Err(broken(Stop::from_io(Stage::Exchange, error), false));
    }
    let mut window = Window { buf: vec![0; FIRST_READ], start: 0, end: 0 };
    let head = match read_final_head(conn, &mut window, probe).await {
        Ok(head) => head,
        Err((stop, answered)) => return Err(broken(stop, answered)),
    };
    *status = Some(head.status);
    let read = if probe.spec().expect_status.contains(head.status) {
        read_body(conn, &mut window, head, probe).await
    } else {
        Ok(unexpected_status(&mut window, head, probe))
    };
    read.map_err(|stop| broken(stop, true))
}

/// Reads heads until a final one; the error says whether any byte had come.
async fn read_final_head(
    conn: &mut Conn,
    window: &mut Window,
    probe: &Probe,
) -> Result<Head, (Stop, bool)> {
    let head_only = probe.spec().method == "HEAD";
    let mut answered = false;
    for _ in 0..=MAX_INTERIM {
        let head =
            read_head(conn, window, head_only, &mut answered).await.map_err(|s| (s, answered))?;
        window.start += head.length;
        match head.status {
            101 => return Err((Failure::protocol("switched protocols unasked").into(), true)),
            100..=199 => {}
            _ => return Ok(head),
        }
    }
    Err((Failure::protocol("too many interim answers").into(), true))
}

async fn read_head(
    conn: &mut Conn,
    window: &mut Window,
    head_only: bool,
    answered: &mut bool,
) -> Result<Head, Stop> {
    // A head grows by whole lines: parsing again for every byte of one would let a server that drips
    // single bytes cost the square of its head.
    let mut parse = !window.unread().is_empty();
    loop {
        if parse && let Some(head) = parse_head(window.unread(), head_only)? {
            return Ok(head);
        }
        let held = window.unread().len();
        if held >= MAX_HEAD {
            return Err(Failure::protocol("the head of the answer is over 16 KiB").into());
        }
        let read = window.fill(conn, MAX_HEAD - held).await?;
        if read == 0 {
            let detail = if *answered || held > 0 {
                "closed within the head of the answer"
            } else {
                "closed without an answer"
            };
            return Err(Failure::reset(detail).into());
        }
        *answered = true;
        parse = held == 0 || window.buf[window.end - read..window.end].contains(&b'\n');
    }
}

async fn read_body(
    conn: &mut Conn,
    window: &mut Window,
    head: Head,
    probe: &Probe,
) -> Result<Answer, Stop> {
    let mut body = head.body;
    let mut sink = BodySink::new(probe.spec().max_body, probe.looks_at_body());
    body.check_length(&sink)?;
    loop {
        window.start += body.feed(window.unread(), &mut sink)?;
        if body.done() {
            break;
        }
        let read = window.fill(conn, body.appetite(&sink)).await?;
        if read == 0 {
            if matches!(body, Body::UntilClose) {
                break;
            }
            return Err(Failure::reset("closed within the body of the answer").into());
        }
    }
    let failure = (!probe.body_is_expected(sink.kept()))
        .then(|| Failure::body("the body does not hold the expected text"));
    // Bytes after the end belong to no answer of ours.
    let reusable = head.keep && window.unread().is_empty();
    Ok(Answer { failure, reusable })
}

/// The verdict stands: the body is taken only if it is here already, to save the connection.
fn unexpected_status(window: &mut Window, head: Head, probe: &Probe) -> Answer {
    let mut body = head.body;
    let mut sink = BodySink::new(probe.spec().max_body, false);
    let whole = body.feed(window.unread(), &mut sink).is_ok_and(|used| {
        window.start += used;
        body.done()
    });
    let failure = Failure::new(FailureKind::Status, format!("status {}", head.status));
    let reusable = whole && head.keep && window.unread().is_empty();
    Answer { failure: Some(failure), reusable }
}
