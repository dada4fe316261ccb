//! Every value of the maps that both sides know is written as the compiled programs read it.

use super::btf::Btf;
use super::*;
use crate::notes::{MemberNote, SetBy, VipNote};
use crate::replies::Prefix;

static BALANCER: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/balancer.bpf.o"));

/// Bytes none of which is like another.
fn bytes<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|n| from.wrapping_add(n as u8))
}

fn key(from: u32) -> FlowKey {
    FlowKey { words: std::array::from_fn(|n| from + n as u32), multiplier: u64::from(from) << 32 }
}

fn key_bytes(key: FlowKey) -> Vec<u8> {
    let words = key.words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(key.multiplier.to_le_bytes()).collect()
}

fn padded(mut written: Vec<u8>, bytes: usize) -> Vec<u8> {
    written.resize(bytes, 0);
    written
}

#[test]
fn settings_are_written_as_the_program_reads_them() {
    let btf = Btf::of(BALANCER);
    let index = |from: u64| VipIndex { seed: [from, from + 1, from + 2], ports: from + 3 };
    let settings = ConfigValue {
        index: [index(0x1_0000_0001), index(0x2_0000_0001)],
        mac_seed: [0x3_0000_0001, 0x4_0000_0001],
        switch_ms: 0x5_0000_0001,
        vip_half: 1,
        mac_half: 0,
        epoch: 1,
        salts: 3,
        salt: [key(100), key(200)],
        spread: key(300),
    };
    let way = Way {
        until_ms: 0x6_0000_0001,
        mac: bytes(1),
        source_mac: bytes(11),
        port: 0x0102_0304,
        ifindex: 0x0506_0708,
        mtu: 0x090a_0b0c,
        hairpin_tx: true,
        by: By::DefaultRoute,
        asked: vec![Prefix::new([10, 1, 0, 0].into(), 16)],
        gateway: Some([10, 0, 1, 2].into()),
        interface: "eth0".to_owned(),
        renewed_ms: 0x7_0000_0001,
        hops_until_ms: 0x8_0000_0001,
        generation: 0x9_0000_0001,
    };
    let ways = [way.to_bytes(), Way::none(crate::replies::Why::Configured).to_bytes()].concat();
    let mut written = settings.to_bytes().to_vec();
    assert_eq!(written.len(), WAYS_AT);
    written.extend(&ways);
    let written = padded(written, CONFIG_BYTES);
    let index_bytes = |one: VipIndex| -> Vec<u8> {
        one.seed.iter().chain([&one.ports]).flat_map(|word| word.to_le_bytes()).collect()
    };
    let salts = settings.salt.map(|salt| padded(key_bytes(salt), 64)).concat();
    btf.has(
        "config",
        &written,
        &[
            ("index", &settings.index.map(index_bytes).concat()),
            ("mac_seed", &settings.mac_seed.map(u64::to_le_bytes).concat()),
            ("switch_epoch", &(settings.switch_ms << 1 | 1).to_le_bytes()),
            ("vip_half", &[1]),
            ("mac_half", &[0]),
            ("salts", &[3]),
            ("salt", &salts),
            ("spread", &key_bytes(settings.spread)),
            ("ways", &ways),
        ],
    );
    let one = index_bytes(settings.index[0]);
    btf.has("vip_index", &one, &[("seed", &one[..24]), ("ports", &one[24..])]);
    let one = key_bytes(settings.spread);
    btf.has("flow_key", &one, &[("word", &one[..40]), ("multiplier", &one[40..])]);
    btf.has("salt", &salts[..64], &[("key", &salts[..48])]);
    let (prefix, mask) = way.asked[0].words();
    let asked = [prefix, mask].map(u64::to_le_bytes).concat();
    btf.has("asked", &asked, &[("prefix", &asked[..8]), ("mask", &asked[8..])]);
    btf.has(
        "way",
        &way.to_bytes(),
        &[
            ("until_ms", &way.until_ms.to_le_bytes()),
            ("mac", &way.mac),
            ("source_mac", &way.source_mac),
            ("port", &way.port.to_le_bytes()),
            ("ifindex", &way.ifindex.to_le_bytes()),
            ("mtu", &way.mtu.to_le_bytes()),
            ("asked_count", &1u32.to_le_bytes()),
            ("hairpin_tx", &[1]),
            ("by", &[2]),
            ("why", &[0]),
            ("asked", &padded(asked, 16 * MAX_ASKED)),
            ("gateway", &std::net::Ipv4Addr::new(10, 0, 1, 2).to_ipv6_mapped().octets()),
            ("interface", &padded(b"eth0".to_vec(), 16)),
            ("renewed_ms", &way.renewed_ms.to_le_bytes()),
            ("hops_until_ms", &way.hops_until_ms.to_le_bytes()),
            ("generation", &way.generation.to_le_bytes()),
        ],
    );
}

#[test]
fn services_and_servers_are_written_as_the_program_reads_them() {
    let btf = Btf::of(BALANCER);
    let vip = VipValue {
        address: [0x0102_0304, 0x0506_0708, 0x090a_0b0c, 0x0d0e_0f10],
        key: 0x1112_1314,
        number: 0x1516_1718,
        base: 0x191a_1b1c,
        policy: 2,
        slot_half: 1,
        part: [0x1_0000_0001, 0x2_0000_0001, 0x3_0000_0001],
    };
    btf.has(
        "vip",
        &vip.to_bytes(),
        &[
            ("address", &vip.address.map(u32::to_le_bytes).concat()),
            ("key", &vip.key.to_le_bytes()),
            ("number", &vip.number.to_le_bytes()),
            ("base", &vip.base.to_le_bytes()),
            ("policy", &[2]),
            ("slot_half", &[1]),
            ("part", &vip.part.map(u64::to_le_bytes).concat()),
        ],
    );
    let member = MemberValue {
        mac: bytes(1),
        source_mac: bytes(11),
        port: 0x0102_0304,
        ifindex: 0x0506_0708,
        state: MemberState::Gone,
        hairpin_tx: true,
        agent: true,
        weight: 0x0a0b,
    };
    btf.has(
        "member",
        &member.to_bytes(),
        &[
            ("mac", &member.mac),
            ("source_mac", &member.source_mac),
            ("port", &member.port.to_le_bytes()),
            ("ifindex", &member.ifindex.to_le_bytes()),
            ("state", &[2]),
            ("flags", &[3]),
            ("weight", &member.weight.to_le_bytes()),
        ],
    );
    // As `Maps::clock` reads it.
    let clock = [7u32, 1].map(u32::to_le_bytes).concat();
    btf.has("clock", &clock, &[("offset_ms", &clock[..4]), ("heard", &clock[4..])]);
    let bucket = bucket_to_bytes(&[(0x0102_0304_0506_0708, 0x8009), (5, 6)]);
    let keys = [0x0102_0304_0506_0708u64, 5, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
    let ids = [0x8009u16, 6, 0, 0, 0, 0].map(u16::to_le_bytes).concat();
    btf.has("mac_bucket", &bucket, &[("key", &keys), ("id", &ids)]);
    // As `Maps::count` reads them.
    let counts: [u8; 64] = bytes(0);
    let names = [
        "packets_in",
        "bytes_in",
        "packets_out",
        "bytes_out",
        "opened",
        "closed",
        "clock_moved",
        "unanswered",
    ];
    let each: Vec<(&str, &[u8])> = names.into_iter().zip(counts.chunks(8)).collect();
    btf.has("member_count", &counts, &each);
}

#[test]
fn lists_are_written_as_the_program_reads_them() {
    let btf = Btf::of(BALANCER);
    let shorts = |list: &[u16], length: usize| {
        padded(list.iter().flat_map(|id| id.to_le_bytes()).collect(), 2 * length)
    };
    let slots = slots_to_bytes(&[1, 2, 3], &[70_000, 8, 9], &[4, 5]);
    let costs = [70_000u32, 8, 9].map(u32::to_le_bytes).concat();
    btf.has(
        "slots",
        slots.as_slice(),
        &[
            ("policy_length", &3u32.to_le_bytes()),
            ("spread_length", &2u32.to_le_bytes()),
            ("policy", &shorts(&[1, 2, 3], MAX_SLOTS)),
            ("spread", &shorts(&[4, 5], MAX_SLOTS)),
            ("cost", &padded(costs, 4 * MAX_SLOTS)),
        ],
    );
    let permutation = permutation_to_bytes(&[7, 8], &[9, 10]);
    let (forward, inverse) = (shorts(&[7, 8], MAX_IDS), shorts(&[9, 10], MAX_IDS));
    let fields: [(&str, &[u8]); 2] = [("forward", &forward), ("inverse", &inverse)];
    btf.has("permutation", permutation.as_slice(), &fields);
    let last = padded(vec![1], 8 * LAST_ROW);
    btf.has("last", &last, &[("event", &last)]);
    let address: [u8; 20] = bytes(0);
    let fields = [("address", &address[..16]), ("family", &address[16..])];
    btf.has("address_key", &address, &fields);
}

#[test]
fn what_outlives_a_daemon_is_written_as_the_headers_have_it() {
    let btf = Btf::of(BALANCER);
    let vip = VipNote {
        set_by: SetBy::Controller,
        who: "plimsoll run".to_owned(),
        epoch: 0x1_0000_0001,
        unix_ms: 0x2_0000_0001,
    };
    let fields = |epoch: u64, unix_ms: u64, failures: u64| {
        [epoch, unix_ms, failures].map(|word| word.to_le_bytes().to_vec())
    };
    let [epoch, unix_ms, failures] = fields(vip.epoch, vip.unix_ms, 0);
    btf.has(
        "note",
        &vip.to_bytes(),
        &[
            ("epoch", &epoch),
            ("unix_ms", &unix_ms),
            ("failures", &failures),
            ("load_ppm", &[0; 4]),
            ("weight", &[0; 2]),
            ("share", &[0; 2]),
            ("set_by", &[1]),
            ("flags", &[0]),
            ("who", &padded(b"plimsoll run".to_vec(), 30)),
        ],
    );
    let member = MemberNote {
        weight: Some(0x0102),
        load_ppm: Some(0x0304_0506),
        unix_ms: 0x3_0000_0001,
        failures: 0x4_0000_0001,
        share: 0x0708,
        until_ms: 0x5_0000_0001,
        since_ms: 0x6_0000_0001,
        spared: 0x090a,
    };
    let [epoch, unix_ms, failures] = fields(member.until_ms, member.unix_ms, member.failures);
    let mut who = vec![0; 30];
    who[6..14].copy_from_slice(&member.since_ms.to_le_bytes());
    who[14..16].copy_from_slice(&member.spared.to_le_bytes());
    btf.has(
        "note",
        &member.to_bytes(),
        &[
            ("epoch", &epoch),
            ("unix_ms", &unix_ms),
            ("failures", &failures),
            ("load_ppm", &0x0304_0506u32.to_le_bytes()),
            ("weight", &0x0102u16.to_le_bytes()),
            ("share", &0x0708u16.to_le_bytes()),
            ("set_by", &[0]),
            ("flags", &[3]),
            ("who", &who),
        ],
    );
    let name = name_to_bytes("shop");
    btf.has("name", &name, &[("text", &name)]);
    let meta = [1u32, 2, 3, 4].map(u32::to_le_bytes).concat();
    let names = ["layout", "version_bits", "vips", "stride"];
    let each: Vec<(&str, &[u8])> = names.into_iter().zip(meta.chunks(4)).collect();
    btf.has("meta", &meta, &each);
}
