//! Sticky cookies: a client that comes back with one goes where it went before, by the quick path and by hyper's.

use crate::support::*;

const COOKIE: &str = "policy: round_robin, cookie: { name: SRV, max_age: 1h, same_site: lax }";

/// A way to ask that is passed on by the quick path, once a connection is idle, and one that is hyper's.
const HEADS: [&str; 2] = ["", "te: trailers\r\n"];

fn ask(client: &mut Client, head: &str, cookies: &[&str]) -> Answer {
    let cookies: String = cookies.iter().map(|one| format!("Cookie: {one}\r\n")).collect();
    client.send(&format!("GET / HTTP/1.1\r\nhost: shop\r\n{head}{cookies}\r\n")).answer()
}

/// The cookie that an answer sets, as a client sends it.
fn set(answer: &Answer) -> Option<String> {
    Some(answer.header("set-cookie")?.split(';').next()?.to_owned())
}

#[test]
fn a_client_goes_where_it_went_before_and_backends_do_not_see_by_what() {
    let backends = [Backend::ok("0"), Backend::ok("1"), Backend::ok("2")];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let proxy = start(&egress(1, "", COOKIE, &addresses));
    let mut client = proxy.client("out");
    // Without one, requests take turns, and each response says where it went.
    let first: Vec<Answer> = (0..6).map(|_| ask(&mut client, "", &[])).collect();
    for answer in &first {
        let full = answer.header("set-cookie").expect("a cookie");
        assert!(full.ends_with("; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"), "{full}");
        assert_eq!(answer.header("cache-control"), Some("private"));
        assert!(addresses.iter().all(|address| !full.contains(&address.port().to_string())));
    }
    assert_eq!(set(&first[0]), set(&first[3]), "by the quick path as by hyper's");
    assert_ne!(set(&first[0]), set(&first[1]));
    for head in HEADS {
        for answer in &first[..3] {
            let ours = set(answer).expect("a cookie");
            for _ in 0..4 {
                let again = ask(&mut client, head, &["a=1", &format!("b=2;{ours}; c=3")]);
                assert_eq!(again.body, answer.body);
                assert_eq!(
                    (again.header("set-cookie"), again.header("cache-control")),
                    (None, None)
                );
                let received = backends[answer.body.parse::<usize>().expect("a number")].last();
                assert!(received.head.contains(": a=1\r\n"), "{}", received.head);
                assert!(received.head.contains(": b=2; c=3\r\n"), "{}", received.head);
                assert!(!received.head.contains("SRV"), "{}", received.head);
            }
            let alone = ask(&mut client, head, &[&ours]);
            let received = backends[alone.body.parse::<usize>().expect("a number")].last();
            assert_eq!((alone.body, received.header("cookie")), (answer.body.clone(), None));
        }
        // What names nothing is as none.
        let answer = ask(&mut client, head, &["SRV=0123456789abcdef"]);
        assert!(set(&answer).is_some());
    }
    // Another proxy of the same configuration knows them, too.
    let other = start(&egress(1, "", COOKIE, &addresses));
    let ours = set(&first[1]).expect("a cookie");
    assert_eq!(ask(&mut other.client("out"), "", &[&ours]).body, first[1].body);
}

#[test]
fn a_client_whose_backend_is_drained_or_dead_goes_elsewhere_and_stays_there() {
    let backends = [Backend::ok("0"), Backend::ok("1")];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let proxy = start(&egress(1, "", COOKIE, &addresses));
    let mut client = proxy.client("out");
    let (zero, one) = (ask(&mut client, "", &[]), ask(&mut client, "", &[]));
    assert_eq!((zero.body.as_str(), one.body.as_str()), ("0", "1"));
    let (zero, one) = (set(&zero).expect("a cookie"), set(&one).expect("a cookie"));
    proxy.proxy.handle().drain("b0", None, false).expect("drained");
    until("it is known", || ask(&mut client, "", &[&zero]).body == "1");
    for head in HEADS {
        let moved = ask(&mut client, head, &[&zero]);
        assert_eq!((moved.body.as_str(), set(&moved)), ("1", Some(one.clone())));
    }
    proxy.proxy.handle().drain("b0", None, true).expect("back");
    until("it is known", || ask(&mut client, "", &[&zero]).body == "0");

    // One that cannot be connected to.
    let (_held, dead) = dead();
    let other = start(&egress(1, "", COOKIE, &[dead, addresses[1]]));
    let moved = ask(&mut other.client("out"), "", &[&zero]);
    assert_eq!((moved.status, moved.body.as_str(), set(&moved)), (200, "1", Some(one)));
}

#[test]
fn a_client_whose_backend_refuses_goes_elsewhere_and_one_that_fails_is_none_to_stay_with() {
    let is_full = Gate::default();
    let full = is_full.clone();
    let refusing = Backend::new(move |_, stream| {
        // An ingress in front of it would say so.
        let refused = "plimsoll-rejected: full\r\n";
        match full.is_open() {
            true => write(stream, &response("429 Too Many Requests", refused, "")),
            false => write(stream, &response("200 OK", "", "0")),
        }
        true
    });
    let failing = Backend::new(|request, stream| {
        let status = if request.line().contains("/bad") { "503 No" } else { "200 OK" };
        write(stream, &response(status, "", "1"));
        true
    });
    let proxy = start(&egress(1, "", COOKIE, &[refusing.address, failing.address]));
    let mut client = proxy.client("out");
    let zero = set(&ask(&mut client, "", &[])).expect("a cookie");
    is_full.open();
    for head in HEADS {
        let moved = ask(&mut client, head, &[&zero]);
        assert_eq!((moved.status, moved.body.as_str()), (200, "1"));
        assert!(set(&moved).is_some_and(|cookie| cookie != zero), "{}", moved.head);
    }
    for head in HEADS {
        let bad = format!("GET /bad HTTP/1.1\r\nhost: shop\r\n{head}\r\n");
        let answer = client.send(&bad).answer();
        assert_eq!((answer.status, answer.header("set-cookie")), (503, None));
    }
}
