//! The access log: a line of JSON for each request, or for a sample of them. Written by a thread of its own: a request
//! puts its line into a queue, and where that is full the line is dropped and counted.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Request, StatusCode};
use rand::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use tracing::warn;

use crate::config::AccessLog;
use crate::serve::Client;

/// Lines that wait for their writer: what it writes in some tens of milliseconds.
const WAITING: usize = 8_192;
/// Lines are on their way to the file no longer than this after the last one.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// How long the end of the proxy waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The longest text of a client that is logged, bytes.
const MOST: usize = 2_048;
const TRACE: HeaderName = HeaderName::from_static("traceparent");

/// A request, as it is logged.
#[derive(Debug, Serialize)]
struct Line {
    /// When it came, milliseconds since 1970.
    unix_ms: u64,
    #[serde(serialize_with = "name")]
    entry: Arc<str>,
    client: std::net::SocketAddr,
    method: String,
    host: String,
    target: String,
    /// Absent where the client left before it was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Absent where none was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<std::net::SocketAddr>,
    /// How often it was sent.
    tries: u32,
    /// Until the head of its response, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_ms: Option<f64>,
    /// Until its end.
    total_ms: f64,
    /// Its trace, as the client gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

fn name<S: serde::Serializer>(name: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name)
}

/// The log of all entries.
#[derive(Debug)]
pub(crate) struct Log {
    config: AccessLog,
    lines: SyncSender<Line>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    /// The file is to be opened again: it may have been moved away.
    reopen: AtomicBool,
    /// How often all that waited was written out.
    flushed: AtomicU64,
}

impl Log {
    /// Opens its file. Its thread ends when the last that logs has ended.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(crate) fn open(config: &AccessLog) -> io::Result<Arc<Self>> {
        let file = append(&config.file)?;
        let (lines, waiting) = mpsc::sync_channel(WAITING);
        let counts = Arc::new(Counts::default());
        let (path, of_writer) = (config.file.clone(), counts.clone());
        std::thread::Builder::new()
            .name("proxy-log".to_owned())
            .spawn(move || write(&path, file, &waiting, &of_writer))?;
        Ok(Arc::new(Log { config: config.clone(), lines, counts }))
    }

    /// Whether it is as this asks.
    pub(crate) fn is(&self, config: &AccessLog) -> bool {
        self.config == *config
    }

    /// Has the file opened again.
    pub(crate) fn reopen(&self) {
        self.counts.reopen.store(true, Ordering::Relaxed);
    }

    /// Waits until what waits is in the file, for a few seconds at most.
    pub(crate) fn flush(&self) {
        let before = self.counts.flushed.load(Ordering::Relaxed);
        let began = Instant::now();
        // Twice: the first may have begun before the last line came.
        while self.counts.flushed.load(Ordering::Relaxed) < before + 2
            && began.elapsed() < LAST_LINES
        {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lines written, and dropped.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let Counts { written, dropped, .. } = &*self.counts;
        (written.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed))
    }

    fn put(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn write(path: &Path, file: File, lines: &Receiver<Line>, counts: &Counts) {
    let mut file = BufWriter::new(file);
    let mut is_failing = false;
    loop {
        let line = match lines.recv_timeout(FLUSH_EVERY) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if counts.reopen.swap(false, Ordering::Relaxed) {
            let _ = file.flush();
            match append(path) {
                Ok(again) => file = BufWriter::new(again),
                Err(error) => warn!("proxy.access_log.file: {}: {error}", path.display()),
            }
        }
        let done = match line {
            Some(line) => serde_json::to_writer(&mut file, &line)
                .map_err(io::Error::from)
                .and_then(|()| file.write_all(b"\n"))
                .map(|()| counts.written.fetch_add(1, Ordering::Relaxed))
                .map(drop),
            None => file.flush().inspect(|()| {
                counts.flushed.fetch_add(1, Ordering::Relaxed);
            }),
        };
        match done {
            Ok(()) => is_failing = false,
            Err(error) => {
                counts.dropped.fetch_add(1, Ordering::Relaxed);
                if !is_failing {
                    warn!("proxy.access_log.file: {}: {error}", path.display());
                }
                is_failing = true;
            }
        }
    }
    let _ = file.flush();
}

/// One thread's part of one entry's logging.
pub(crate) struct Access {
    log: Arc<Log>,
    entry: Arc<str>,
    /// Of 2^64 numbers so many are logged.
    chance: u64,
    rng: RefCell<Xoshiro256PlusPlus>,
    /// Whether the next request is logged: decided before it is known.
    next: Cell<bool>,
}

impl Access {
    pub(crate) fn new(log: &Arc<Log>, entry: &str) -> Self {
        // 1 is all of them: the conversion ends at the greatest number.
        let chance = (log.config.sample * u64::MAX as f64) as u64;
        let access = Access {
            log: log.clone(),
            entry: entry.into(),
            chance,
            rng: RefCell::new(crate::random::generator()),
            next: Cell::new(false),
        };
        access.draw();
        access
    }

    fn draw(&self) {
        self.next.set(self.rng.borrow_mut().next_u64() <= self.chance);
    }

    /// Whether the next request is to be logged; a plain one that is not draws for the one after it.
    pub(crate) fn is_next(&self) -> bool {
        let is_next = self.next.get();
        if !is_next {
            self.draw();
        }
        is_next
    }

    /// A request has come; it is logged, if it is, when its response has ended.
    pub(crate) fn begin(&self, client: &Client, request: &Request<Incoming>) {
        if !self.next.get() {
            self.draw();
            return;
        }
        self.draw();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = Line {
            unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            entry: self.entry.clone(),
            client: client.address(),
            method: request.method().to_string(),
            host: text(request.headers(), &header::HOST).unwrap_or_default(),
            target: cut(request.uri().path_and_query().map_or("", |target| target.as_str())),
            status: None,
            backend: None,
            tries: 0,
            head_ms: None,
            total_ms: 0.0,
            traceparent: text(request.headers(), &TRACE),
        };
        let pending = Pending { log: self.log.clone(), began: Instant::now(), line };
        *client.open.record.0.borrow_mut() = Some(Box::new(pending));
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| cut(&String::from_utf8_lossy(value.as_bytes())))
}

fn cut(text: &str) -> String {
    let fits = (0..=MOST.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..fits.unwrap_or(0)].to_owned()
}

#[derive(Debug)]
struct Pending {
    log: Arc<Log>,
    began: Instant,
    line: Line,
}

/// What is known so far of the request that is under way on a connection, if it is to be logged.
#[derive(Debug, Default)]
pub(crate) struct Record(RefCell<Option<Box<Pending>>>);

impl Record {
    /// It was sent there.
    pub(crate) fn sent(&self, backend: std::net::SocketAddr) {
        if let Some(pending) = &mut *self.0.borrow_mut() {
            pending.line.backend = Some(backend);
            pending.line.tries += 1;
        }
    }

    /// This is how it was answered.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(pending) = &mut *self.0.borrow_mut() {
            pending.line.status = Some(status.as_u16());
            pending.line.head_ms = Some(pending.began.elapsed().as_secs_f64() * 1e3);
        }
    }

    /// It is no client's request, and not logged.
    pub(crate) fn forget(&self) {
        self.0.take();
    }

    /// It is over.
    pub(crate) fn end(&self) {
        if let Some(mut pending) = self.0.borrow_mut().take() {
            pending.line.total_ms = pending.began.elapsed().as_secs_f64() * 1e3;
            pending.log.put(pending.line);
        }
    }
}
