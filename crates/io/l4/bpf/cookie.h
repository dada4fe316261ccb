/* Cookies: the C side of crates/logic/cookie, bound to it by tests/vectors.csv there. */
#pragma once
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "base.h"
#include "types.h"

/* Set by the loader before the program is verified, so that they are constants to the verifier. */
volatile const __u32 version_bits = 4;

/* A connection's words, as they lie in the packet: client, VIP, ports (client first), protocol and
 * number of address words. IPv4 has 4 of them, IPv6 10. */
struct flow {
	__u32 word[10];
};

INLINE __u64 pair_hash(const struct flow_key *key, const int at, __u32 left, __u32 right)
{
	return (__u64)(__u32)(left + key->word[at]) * (__u32)(right + key->word[at + 1]);
}

INLINE __u64 end_hash(const struct flow_key *key, __u64 sum)
{
	return (sum ^ (sum >> 32)) * key->multiplier;
}

/* Keeps the compiler from fetching what comes after before this is done. */
#define IN_TURN(value)                                     \
	({                                                 \
		__u64 now_ = value;                        \
		asm volatile("" : "+r"(now_) : : "memory"); \
		now_;                                      \
	})

/* What a VIP's IPv6 address adds to its connections' hashes: worked out once for the balancer. */
INLINE __u64 part_of(const struct flow_key *key, const __u32 *vip)
{
	return pair_hash(key, 4, vip[0], vip[1]) + pair_hash(key, 6, vip[2], vip[3]);
}

/* A connection's hash, of words where they lie, pair by pair: all of them and their keys at once are more
 * than there are registers, and went to the stack and back. `part` is part_of() by IPv6. */
INLINE __u64 hash_in_place(const struct flow_key *key, const __u32 *client, const __u32 *vip,
			   __u64 part, __u32 ports, const int family)
{
	__u64 sum;
	if (family == 4) {
		sum = pair_hash(key, 0, *client, *vip);
		return end_hash(key, sum + pair_hash(key, 2, ports, IPPROTO_TCP | 2 << 8));
	}
	sum = IN_TURN(part + pair_hash(key, 0, client[0], client[1]));
	sum = IN_TURN(sum + pair_hash(key, 2, client[2], client[3]));
	return end_hash(key, sum + pair_hash(key, 8, ports, IPPROTO_TCP | 8 << 8));
}

/* The same, of words in a row. */
INLINE __u64 flow_hash(const struct flow_key *key, const struct flow *flow, const int words)
{
	const __u32 *w = flow->word;
	if (words == 4)
		return hash_in_place(key, w, w + 1, 0, w[2], 4);
	return hash_in_place(key, w, w + 4, part_of(key, w + 4), w[8], 6);
}

/* Each look at a constant of the loader's is a load: once for each use of it. */
INLINE __u32 id_bits(void)
{
	return 15 - version_bits;
}

/* The upper half of a timestamp: version | epoch | cookie. */
INLINE __u16 hide(const struct permutation *p, __u64 hash, __u32 id, __u32 epoch, __u16 real_upper)
{
	__u32 bits = id_bits(), mask = (1u << bits) - 1;
	__u32 before = hash >> (64 - bits);
	__u32 after = hash >> (64 - 2 * bits);
	__u32 cookie = (p->forward[(id ^ before) & mask & (MAX_IDS - 1)] + after) & mask;
	return real_upper << (bits + 1) | epoch << bits | cookie;
}

INLINE __u32 epoch_of(__u16 upper)
{
	return (upper >> (15 - version_bits)) & 1;
}

INLINE __u32 reveal(const struct permutation *p, __u64 hash, __u16 upper)
{
	__u32 bits = id_bits(), mask = (1u << bits) - 1;
	__u32 before = hash >> (64 - bits);
	__u32 after = hash >> (64 - 2 * bits);
	return (p->inverse[(upper - after) & mask & (MAX_IDS - 1)] ^ before) & mask;
}

/* The upper half of the server's timestamp of which `upper` and `lower` came back. */
INLINE __u16 restore(__u16 upper, __u16 lower, __u32 offset_ms, __u64 now)
{
	__u32 bits = 16 + version_bits;
	__u32 known = (__u32)(upper >> (32 - bits)) << 16 | lower;
	__u32 latest = (__u32)now + offset_ms + (1u << (bits - 3));
	return (latest - ((latest - known) & ((1u << bits) - 1))) >> 16;
}

#define SETTLED_MS 200000
#define OFFSET_TOLERANCE_MS 1000

/* The salt for a packet that its server stamped with `real_upper`; see `SaltSwitch`. `switch_epoch`: when
 * the epoch took over, and which it is, in the lowest bit. */
INLINE __u32 epoch_now(__s64 switch_epoch, __u16 real_upper, __u32 offset_ms, __u64 now)
{
	__s64 switch_ms = switch_epoch >> 1, since = now - switch_ms;
	__u32 epoch = switch_epoch & 1;
	if (LIKELY(since >= SETTLED_MS))
		return epoch;
	if (since < 0)
		return epoch ^ 1;
	__u16 first = (((__u32)switch_ms + offset_ms) >> 16) + 1;
	return (__s16)(real_upper - first) >= 0 ? epoch : epoch ^ 1;
}
