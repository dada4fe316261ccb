//! Prints `tests/vectors.csv`: cookies that the Rust codec and the XDP program must both produce and
//! read. Written anew only when the format of a cookie changes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plimsoll_cookie::{CookieCodec, Epoch, Layout, Salt, ServerId, Tuple};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

fn main() {
    let mut rng = ChaCha20Rng::seed_from_u64(20);
    println!("secret,version_bits,epoch,client,vip,id,real,wire");
    for version_bits in [4, 1, 2, 6, 8] {
        let layout = Layout::new(version_bits).expect("in range");
        for epoch in [Epoch::Even, Epoch::Odd] {
            let mut secret = [0; 32];
            rng.fill_bytes(&mut secret);
            let codec = CookieCodec::new(layout, epoch, Salt::derive(&secret, layout));
            for line in 0..20 {
                let tuple = tuple(&mut rng, line % 2 == 1);
                let id = ServerId(match line {
                    0 => 1,
                    1 => layout.max_id().0,
                    _ => 1 + (rng.next_u32() % u32::from(layout.max_id().0)) as u16,
                });
                let real = rng.next_u32();
                let wire = codec.encode(id, &tuple, real, epoch).expect("a salt is set");
                let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
                println!(
                    "{hex},{version_bits},{},{},{},{},{real},{wire}",
                    epoch.bit(),
                    tuple.client,
                    tuple.vip,
                    id.0
                );
            }
        }
    }
}

fn tuple(rng: &mut ChaCha20Rng, v6: bool) -> Tuple {
    let mut address = |port: u16| {
        let ip = if v6 {
            let high = u128::from(rng.next_u64());
            IpAddr::V6(Ipv6Addr::from(0x2001_0db8 << 96 | high << 32 | u128::from(rng.next_u32())))
        } else {
            IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | rng.next_u32() & 0x00ff_ffff))
        };
        SocketAddr::new(ip, port)
    };
    let vip = address(443);
    let client = address(0);
    let port = 1024 + (rng.next_u32() % 60_000) as u16;
    Tuple { client: SocketAddr::new(client.ip(), port), vip, protocol: 6 }
}
