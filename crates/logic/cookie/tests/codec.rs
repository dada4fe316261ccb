//! What a cookie promises: to be read back, to hide its server, to survive time and rotation.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_cookie::{
    ConfigTags, CookieCodec, Epoch, HashIndex, IdState, Layout, Restorer, Salt, SaltSwitch,
    ServerId, SpreadKey, SubflowOrder, TagError, Tuple, Verdict,
};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

const SECRET: [u8; 32] = [7; 32];

fn tuple(number: u32) -> Tuple {
    let [_, a, b, c] = number.to_be_bytes();
    Tuple {
        client: SocketAddr::from(([11, a, b, c], 40_000)),
        vip: SocketAddr::from(([10, 0, 9, 9], 80)),
        protocol: 6,
    }
}

fn codec(servers: u16) -> CookieCodec {
    let layout = Layout::default();
    let mut codec = CookieCodec::new(layout, Epoch::Even, Salt::derive(&SECRET, layout));
    for id in 1..=servers {
        assert!(codec.set_id(ServerId(id), IdState::Live));
    }
    codec
}

#[test]
fn every_id_of_every_layout_comes_back() {
    for version_bits in 1..=8 {
        let layout = Layout::new(version_bits).expect("in range");
        let salt = Salt::derive(&SECRET, layout);
        for id in 1..=layout.max_id().0 {
            let tuple = tuple(u32::from(id) * 77);
            let cookie = salt.hide(ServerId(id), &tuple);
            assert!(cookie <= layout.max_id().0);
            assert_eq!(salt.reveal(cookie, &tuple), ServerId(id));
        }
    }
    assert!(Layout::new(0).is_err() && Layout::new(9).is_err());
}

#[test]
fn a_server_that_is_gone_makes_its_cookies_stale_and_an_unknown_salt_makes_them_foreign() {
    let mut codec = codec(3);
    let wire = codec.encode(ServerId(2), &tuple(1), 5_000_000, Epoch::Even).expect("has a salt");
    codec.set_id(ServerId(2), IdState::Gone);
    assert_eq!(codec.decode(&tuple(1), wire).verdict, Verdict::Stale(ServerId(2)));
    codec.set_id(ServerId(2), IdState::Unused);
    assert_eq!(codec.decode(&tuple(1), wire).verdict, Verdict::Foreign);
    codec.set_id(ServerId(2), IdState::Live);
    codec.set_salt(Epoch::Even, None);
    assert_eq!(codec.decode(&tuple(1), wire).verdict, Verdict::Foreign);
    assert_eq!(codec.encode(ServerId(2), &tuple(1), 0, Epoch::Even), None);
    assert!(!codec.set_id(ServerId(0), IdState::Live), "zero is nobody's");
    assert!(!codec.set_id(ServerId(2048), IdState::Live), "beyond 11 bits");
}

#[test]
fn forged_cookies_spread_evenly_and_pass_as_often_as_stated() {
    let servers = 128;
    let codec = codec(servers);
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let mut hits = BTreeMap::new();
    let tries = 1_000_000;
    for number in 0..tries {
        if let Verdict::Valid(id) =
            codec.decode(&tuple(number), rng.next_u32() & !(1 << 27)).verdict
        {
            *hits.entry(id).or_insert(0u32) += 1;
        }
    }
    let passed: u32 = hits.values().sum();
    let stated = Layout::default().undetected_foreign(usize::from(servers)) * f64::from(tries);
    assert!((f64::from(passed) - stated).abs() < 0.02 * stated, "{passed} of {stated}");
    // 488 expected a server, deviation 22: six of them.
    assert_eq!(hits.len(), usize::from(servers));
    assert!(hits.values().all(|&hit| hit.abs_diff(488) < 133), "{hits:?}");
}

#[test]
fn flipping_a_bit_of_a_cookie_leads_anywhere() {
    // Under `id XOR hash` each of the 11 flips would lead from a server to one other, always the same.
    let codec = codec(2047);
    let mut reached = BTreeMap::new();
    for number in 0..20_470 {
        let wire = codec.encode(ServerId(100), &tuple(number), 0, Epoch::Even).expect("has a salt");
        if let Verdict::Valid(id) = codec.decode(&tuple(number), wire ^ 1 << 16).verdict {
            *reached.entry(id).or_insert(0u32) += 1;
        }
    }
    // Where a flip leads hangs on the connection's 11 secret bits: of 2,046 others it reaches
    // 1 - 1/e, 1,293, each for some 10 to 50 of the 20,470 connections.
    assert!(reached.len() > 1200, "{}", reached.len());
    assert!(reached.values().all(|&times| times < 100));
    assert!(!reached.contains_key(&ServerId(100)), "another cookie is another server");
}

#[test]
fn both_families_and_every_part_of_the_tuple_matter() {
    let salt = Salt::derive(&SECRET, Layout::default());
    let base = tuple(1);
    let changed = [
        Tuple { client: "11.0.0.2:40000".parse().expect("address"), ..base },
        Tuple { client: "11.0.0.1:40001".parse().expect("address"), ..base },
        Tuple { vip: "10.0.9.8:80".parse().expect("address"), ..base },
        Tuple { vip: "10.0.9.9:81".parse().expect("address"), ..base },
        Tuple { protocol: 17, ..base },
        Tuple {
            client: "[::b00:1]:40000".parse().expect("address"),
            vip: "[::a00:909]:80".parse().expect("address"),
            protocol: 6,
        },
    ];
    for other in changed {
        assert_ne!(salt.hash().of(&base), salt.hash().of(&other), "{other:?}");
    }
}

#[test]
fn the_wire_never_runs_backwards_within_the_stated_silence() {
    let codec = codec(2047);
    let layout = Layout::default();
    // Every 61 s past several wraps of the clock's low half, its version bits and the clock itself.
    let mut real = u32::MAX - 3_000_000;
    let mut wire = codec.encode(ServerId(9), &tuple(4), real, Epoch::Even).expect("has a salt");
    let silences = [1, 61_000, 66_000, 130_000, 400_000, layout.silence_limit_ms() as u32 - 65_536];
    for step in 0..600 {
        real = real.wrapping_add(silences[step % silences.len()]);
        let next = codec.encode(ServerId(9), &tuple(4), real, Epoch::Even).expect("has a salt");
        assert!((next.wrapping_sub(wire) as i32) > 0, "PAWS at {real}: {wire:x} then {next:x}");
        wire = next;
    }
}

#[test]
fn the_clock_is_restored_exactly_up_to_its_limit() {
    for version_bits in 1..=8 {
        let layout = Layout::new(version_bits).expect("in range");
        let (codec, offset) = (codec_of(layout), 0xfff0_1234u32);
        let mut clock = Restorer::default();
        assert_eq!(clock.restore(0, 0, layout), None, "not heard yet");
        clock.observe(offset.wrapping_add(1000), 1000);
        let window = 1u64 << (16 + version_bits);
        for now in (2_000u64..2_000 + 40 * window).step_by((window / 7 + 13) as usize) {
            // How wrong the learned offset is by now, either way.
            for age in [0, 1, 4_000, 65_535, window * 3 / 4] {
                let real = (now as u32).wrapping_add(offset).wrapping_sub(age as u32);
                let wire = codec.encode(ServerId(1), &tuple(1), real, Epoch::Even).expect("salt");
                let known = codec.decode(&tuple(1), wire).known;
                for wrong in [-900i64, 0, 900] {
                    let now = now.wrapping_add_signed(wrong);
                    assert_eq!(clock.restore(known, now, layout), Some(real), "{age} {wrong}");
                }
            }
        }
    }
}

fn codec_of(layout: Layout) -> CookieCodec {
    let mut codec = CookieCodec::new(layout, Epoch::Even, Salt::derive(&SECRET, layout));
    codec.set_id(ServerId(1), IdState::Live);
    codec
}

#[test]
fn an_offset_holds_until_the_clock_has_moved() {
    let mut clock = Restorer::default();
    clock.observe(50_000, 10_000);
    clock.observe(50_999, 10_000);
    assert_eq!(clock.offset_ms(), Some(40_000));
    clock.observe(90_000, 11_000);
    assert_eq!(clock.offset_ms(), Some(79_000), "the server was restarted");
}

#[test]
fn a_salt_rotation_never_turns_time_back_and_breaks_no_connection() {
    let layout = Layout::default();
    for (to, first) in [(Epoch::Odd, [1; 32]), (Epoch::Even, [2; 32])] {
        let mut codec = CookieCodec::new(layout, to.other(), Salt::derive(&first, layout));
        codec.set_salt(to, Some(Salt::derive(&[9; 32], layout)));
        codec.set_id(ServerId(5), IdState::Live);
        let switch = SaltSwitch { to, at_ms: 1_000_000 };
        for offset in [0u32, 0x8000, 0xffff, 0x7fff_fff0, 0xfff1_0000] {
            let mut wire = None;
            let mut epochs = Vec::new();
            for now in (900_000u64..1_400_000).step_by(977) {
                let real = (now as u32).wrapping_add(offset);
                let epoch = switch.epoch(real, now, offset);
                epochs.push(epoch);
                let next = codec.encode(ServerId(5), &tuple(8), real, epoch).expect("both salts");
                if let Some(before) = wire {
                    assert!((next.wrapping_sub(before) as i32) > 0, "backwards at {now}, {offset}");
                }
                assert_eq!(codec.decode(&tuple(8), next).verdict, Verdict::Valid(ServerId(5)));
                wire = Some(next);
            }
            assert_eq!(epochs.first(), Some(&to.other()));
            assert_eq!(epochs.last(), Some(&to));
            epochs.dedup();
            assert_eq!(epochs.len(), 2, "one change, at offset {offset}");
        }
    }
}

#[test]
fn tags_remember_the_last_sets_of_servers() {
    let ids = |range: std::ops::Range<u16>| range.map(ServerId).collect::<Vec<_>>();
    let mut tags = ConfigTags::new(1, SpreadKey::derive(&SECRET)).expect("in range");
    assert_eq!(tags.push(Vec::new()), Err(TagError::Empty));
    let old = tags.push(ids(1..6)).expect("servers");
    let before: Vec<_> = (0..50).map(|n| tags.server(old, &tuple(n))).collect();
    let new = tags.push(ids(1..9)).expect("servers");
    let after: Vec<_> = (0..50).map(|n| tags.server(old, &tuple(n))).collect();
    assert_eq!(before, after, "an old connection stays");
    let after_new: Vec<_> = (0..50).map(|n| tags.server(new, &tuple(n))).collect();
    assert_ne!(after_new, after);
    // Two sets are remembered: the third has the first one's tag, and then the second's is taken.
    let third = tags.push(ids(10..13)).expect("servers");
    assert_eq!(third, old);
    for n in 0..50 {
        let now = tags.server(old, &tuple(n)).expect("the tag came round");
        assert!((10..13).contains(&now.0), "{now:?} is not of the third set");
        assert_eq!(tags.server(new, &tuple(n)), after_new[n as usize]);
    }
    let fourth = tags.push(ids(20..23)).expect("servers");
    assert_eq!(fourth, new);
    for n in 0..50 {
        let now = tags.server(new, &tuple(n)).expect("the tag came round");
        assert!((20..23).contains(&now.0), "{now:?} is not of the fourth set");
        assert!((10..13).contains(&tags.server(old, &tuple(n)).expect("remembered").0));
    }
    assert!(ConfigTags::new(9, SpreadKey::derive(&SECRET)).is_err());
    let fresh = ConfigTags::new(2, SpreadKey::derive(&SECRET)).expect("in range");
    assert_eq!(fresh.server(0, &tuple(1)), Err(TagError::Forgotten));
}

#[test]
fn a_hash_index_remembers_the_better_choice() {
    let keys = [[1; 32], [2; 32]].map(|secret| SpreadKey::derive(&secret));
    let index = HashIndex::new(keys.to_vec()).expect("two");
    let servers: Vec<_> = (1..=10).map(ServerId).collect();
    let mut loads = BTreeMap::new();
    for number in 0..10_000 {
        let load = |id| loads.get(&id).copied().unwrap_or(0u64);
        let cookie = index.choose(&tuple(number), &servers, load).expect("servers");
        let chosen = index.server(cookie, &tuple(number), &servers).expect("in range");
        *loads.entry(chosen).or_insert(0) += 1;
    }
    // One choice would leave servers some 90 apart; two keep them within a few.
    let (least, most) = (loads.values().min().expect("ten"), loads.values().max().expect("ten"));
    assert!(most - least < 20, "{loads:?}");
    assert_eq!(index.choose(&tuple(1), &[], |_| 0), Err(TagError::Empty));
    assert_eq!(index.server(2, &tuple(1), &servers), None);
}

#[test]
fn each_subflow_has_an_order_of_its_own() {
    let order = SubflowOrder::derive(&SECRET, Layout::default(), 3);
    let mut alike = 0;
    for id in (1..2048).map(ServerId) {
        assert_eq!(order.place(0, id), Some(id));
        for subflow in 1..=3 {
            let place = order.place(subflow, id).expect("three");
            assert_eq!(order.server(subflow, place), Some(id));
            alike += u32::from(place == id);
        }
        alike += u32::from(order.place(1, id) == order.place(2, id));
    }
    // One place in 2,048 by chance, in four comparisons.
    assert!(alike < 24, "{alike}");
    assert_eq!(order.place(4, ServerId(1)), None);
}

#[test]
fn every_subflow_of_a_connection_reaches_the_first_ones_server_by_a_cookie_of_its_own() {
    let layout = Layout::default();
    let order = SubflowOrder::derive(&[9; 32], layout, 3);
    // The codec knows places, not servers: every place may be a server's.
    let codec = codec(layout.max_id().0);
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let mut alike = 0;
    for number in 0..500 {
        let server = ServerId(1 + (rng.next_u32() % u32::from(layout.max_id().0)) as u16);
        let mut cookies = Vec::new();
        for subflow in 0..=3u8 {
            // Each subflow has ends of its own.
            let ends = tuple(number * 4 + u32::from(subflow));
            let place = order.place(subflow, server).expect("three");
            if place == ServerId(0) {
                continue; // one server of each order is there, and needs another order
            }
            let wire = codec.encode(place, &ends, rng.next_u32(), Epoch::Even).expect("a salt");
            let Verdict::Valid(read) = codec.decode(&ends, wire).verdict else {
                panic!("place {place:?} of subflow {subflow}");
            };
            assert_eq!(order.server(subflow, read), Some(server), "subflow {subflow}");
            // By another subflow's order it is another server, but by chance.
            alike += u32::from(order.server((subflow + 1) % 4, read) == Some(server));
            cookies.push(wire >> 16 & u32::from(layout.max_id().0));
        }
        assert!(cookies.len() >= 3, "at most one place in 2,048 is zero");
        assert!(cookies.windows(2).any(|two| two[0] != two[1]), "{cookies:?}");
    }
    assert!(alike <= 6, "{alike} of 2,000: one in 2,048 by chance");
}

#[test]
fn debug_output_shows_no_secret() {
    let layout = Layout::default();
    let salt = Salt::derive(&[7; 32], layout);
    let spread = SpreadKey::derive(&[9; 32]);
    let codec = CookieCodec::new(layout, Epoch::Even, salt.clone());
    let shown = format!("{salt:?} {spread:?} {codec:?}");
    for key in [salt.hash(), spread.hash()] {
        let word = key.words()[0].to_string();
        assert!(
            !shown.contains(&word) && !shown.contains(&key.multiplier().to_string()),
            "{shown}"
        );
    }
    let [first, second, ..] = salt.forward() else { panic!("a permutation") };
    assert!(!shown.contains(&format!("[{first}, {second}")), "{shown}");
    let [first, second, ..] = salt.inverse() else { panic!("a permutation") };
    assert!(!shown.contains(&format!("[{first}, {second}")), "{shown}");
}
