//! The vectors that bind the Rust codec and the XDP program.

use plimsoll_cookie::{CookieCodec, Epoch, IdState, Layout, Salt, ServerId, Tuple, Verdict};

#[test]
fn every_vector_is_written_and_read() {
    let text = include_str!("vectors.csv");
    let mut lines = 0;
    for line in text.lines().skip(1) {
        let field: Vec<&str> = line.split(',').collect();
        let mut secret = [0; 32];
        for (place, byte) in secret.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&field[0][2 * place..2 * place + 2], 16).expect("hex");
        }
        let layout = Layout::new(field[1].parse().expect("bits")).expect("in range");
        let epoch = Epoch::from_bit(field[2].parse().expect("bit"));
        let tuple = Tuple {
            client: field[3].parse().expect("address"),
            vip: field[4].parse().expect("address"),
            protocol: 6,
        };
        let id = ServerId(field[5].parse().expect("id"));
        let (real, wire): (u32, u32) =
            (field[6].parse().expect("real"), field[7].parse().expect("wire"));
        let mut codec = CookieCodec::new(layout, epoch, Salt::derive(&secret, layout));
        assert!(codec.set_id(id, IdState::Live), "{line}");
        assert_eq!(codec.encode(id, &tuple, real, epoch), Some(wire), "{line}");
        let decoded = codec.decode(&tuple, wire);
        assert_eq!(decoded.verdict, Verdict::Valid(id), "{line}");
        assert_eq!(decoded.known, real & ((1 << (16 + layout.version_bits())) - 1), "{line}");
        lines += 1;
    }
    assert_eq!(lines, 200);
}
