//! Clients and backends that read slowly, or not at all, or send byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::*;

/// What is sent to one that does not read: far more than sockets hold.
const LENGTH: usize = 128 << 20;
/// More than the sockets of both connections hold and the proxy buffers together, and less than [`LENGTH`].
const HELD: usize = LENGTH / 2;
static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];

/// Waits until no more is sent, and returns how much was.
fn stalled(sent: &AtomicUsize) -> usize {
    let mut before = 0;
    until("the sender is stopped", || {
        thread::sleep(Duration::from_millis(200));
        let now = sent.load(Ordering::SeqCst);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    before
}

/// Sends [`LENGTH`] bytes, and counts them; whether all were taken.
fn send_all(stream: &mut impl Write, sent: &AtomicUsize) -> bool {
    while sent.load(Ordering::SeqCst) < LENGTH {
        if stream.write_all(&PIECE).is_err() {
            return false;
        }
        sent.fetch_add(PIECE.len(), Ordering::SeqCst);
    }
    true
}

/// Answers with [`LENGTH`] bytes, counts those that were taken, and says when it has ended.
fn generous() -> (Backend, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let (sent, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, over) = (sent.clone(), ended.clone());
    let backend = Backend::new(move |_, stream| {
        write(stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n"));
        let whole = send_all(stream, &counted);
        over.store(true, Ordering::SeqCst);
        whole
    });
    (backend, sent, ended)
}

#[test]
fn a_backend_waits_for_a_client_that_reads_slowly() {
    let (backend, sent, _) = generous();
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let held = stalled(&sent);
    assert!(held < HELD, "{held} bytes are held for a client that reads nothing");
    assert_eq!(client.answer().body.len(), LENGTH);
    until("counted", || proxy.backends()[0].succeeded == 1);
}

#[test]
fn a_client_waits_for_a_backend_that_reads_slowly() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let proxy = start(&egress(1, ", timeouts: { idle: 60s }", "policy: random", &[address]));
    let mut client = proxy.client("out");
    client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n"));
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, mut upload) = (sent.clone(), client.stream.try_clone().expect("a socket"));
    let uploading = thread::spawn(move || send_all(&mut upload, &counted));
    let (mut backend, _) = listener.accept().expect("a connection");
    let held = stalled(&sent);
    assert!(held < HELD, "{held} bytes are held for a backend that reads nothing");
    let (mut received, mut piece) = (0, PIECE);
    while received < LENGTH {
        received += backend.read(&mut piece).expect("a piece");
    }
    write(&mut backend, &response("200 OK", "", "taken"));
    assert!(uploading.join().expect("an upload"));
    assert_eq!(client.answer().body, "taken");
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let (backend, _, ended) = generous();
    let entry = ", timeouts: { idle: 3s }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    until("the backend is free again", || ended.load(Ordering::SeqCst) && proxy.in_flight() == 0);
    let backends = proxy.backends();
    assert_eq!((backends[0].abandoned, backends[0].failed), (1, 0), "not the backend's fault");
}

#[test]
fn a_head_that_comes_byte_by_byte_has_no_longer_than_any_other() {
    let backend = Backend::ok("hello");
    let entry = ", timeouts: { idle: 3s }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client.send("GET / HTTP/1.1\r\nhost: a\r\nx-");
    // Its end never comes: nothing but its time ends it.
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    until("it is given up", || {
        client.send("y");
        !matches!(client.stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    assert!(client.try_answer(Kind::Response).is_none_or(|answer| answer.status == 408));
    assert_eq!(backend.count(), 0);
}
