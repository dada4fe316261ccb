/* The data path: towards servers, and back. Nothing is kept about a connection. */
#pragma once
#include "owner.h"
#include "leave.h"
#include "vip.h"

struct packet {
	struct xdp_md *ctx;
	void *end;
	struct ethernet *eth;
	void *ip;
	struct tcp *tcp;
	struct timestamps *timestamps; /* NULL: it has none */
	int walked;		       /* to them, one option after the other */
	int malformed;
};

/* A connection's hash by an epoch's salt, or BY_SPREAD, known when it is compiled. `ports` are the client's
 * and the VIP's. */
INLINE __u64 hash_by(const struct config *c, const struct vip *vip, __u32 which,
		     const __u32 *client, __u32 ports, const int family)
{
	if (__builtin_constant_p(which == BY_SPREAD) && which == BY_SPREAD)
		return hash_in_place(&c->spread, client, vip->address, vip->part[BY_SPREAD], ports, family);
	/* Written out: the compiler knows the bound, older verifiers (6.1) lose it on the way. */
	__u64 epoch = which;
	asm volatile("%0 &= 1" : "+r"(epoch));
	return hash_in_place(&c->salt[epoch].key, client, vip->address, vip->part[epoch], ports, family);
}

INLINE __u64 hash_from_client(const struct packet *p, const struct config *c, const struct vip *vip,
			      __u32 which, const int family)
{
	return hash_by(c, vip, which, source_of(p->ip, family), load32(p->tcp), family);
}

/* Ports as one word, client first. */
INLINE __u32 turned(__u32 ports)
{
	return ports << 16 | ports >> 16;
}

INLINE __u64 hash_to_client(const struct packet *p, const struct config *c, const struct vip *vip,
			    __u32 which, const int family)
{
	return hash_by(c, vip, which, destination_of(p->ip, family), turned(load32(p->tcp)), family);
}

/* The server that sent a packet, by its MAC address: its id, with SOURCE_AGENT; 0: none of this VIP. Its place
 * follows from the address and then the VIP, which is known last. */
INLINE __u32 find_source(const struct config *c, const struct vip *vip, const __u8 *mac)
{
	__u32 half = c->mac_half & 1, bits = mac_bits, number = vip->number;
	__u64 key = ((__u64) * (__u16 *)mac << 32 | load32(mac + 2)) << 16;
	__u32 at = (key * c->mac_seed[half] >> (64 - bits) | half << bits) ^ number;
	key |= number + 1;
	struct mac_bucket *bucket = bpf_map_lookup_elem(&macs, &at);
	if (!bucket)
		return 0;
#pragma unroll
	for (int way = 0; way < MAC_WAYS; way++)
		if (bucket->key[way] == key)
			return bucket->id[way];
	return 0;
}

INLINE __u32 id_of(__u32 source)
{
	return source & (SOURCE_AGENT - 1);
}

INLINE int to_member(struct xdp_md *ctx, const struct member *m, __u32 at)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if (UNLIKELY((void *)(eth + 1) > end))
		return XDP_PASS;
	write_addresses(eth, m->mac);
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	if (count && !dry_run) {
		count->packets_in++;
		count->bytes_in += end - (void *)eth;
	}
	return leave_by(ctx, m->port, m->ifindex, m->flags & MEMBER_HAIRPIN_TX);
}

/* The server that is remembered of a connection, by its place, while it serves. */
INLINE struct member *remembered(const struct vip *vip, __u64 hash, __u32 *place)
{
	__u32 at = find_owner(hash);
	struct member *m = at - vip->base < stride ? bpf_map_lookup_elem(&members, &at) : NULL;
	if (!m || m->state != MEMBER_LIVE)
		return NULL;
	*place = at;
	return m;
}

/* Sends what has no valid cookie to the server its addresses hash to; a RST to the one that is remembered of
 * its connection. `signs`: TCP's flags, and above them its sequence number. */
GLOBAL int spread_out(struct xdp_md *ctx, struct vip *vip, __u64 hash, __u32 why, __u64 signs)
{
	if (!vip)
		return XDP_PASS;
	count_reason(vip->number, why);
	__u32 at = 0;
	struct member *m = NULL;
	if (signs & TCP_RST) {
		m = remembered(vip, hash, &at);
		ask_owner(vip, hash);
	}
	if (!m) {
		__u32 id = spread(vip, hash, why == REASON_SYN_NO_TIMESTAMP);
		at = vip->base + id;
		m = id ? bpf_map_lookup_elem(&members, &at) : NULL;
	}
	if (!m) {
		count_reason(vip->number, REASON_NO_SERVER);
		return XDP_DROP;
	}
	if (why == REASON_SYN_NO_TIMESTAMP)
		count_opened(at, hash, signs >> 32, 0);
	else if (why == REASON_NO_TIMESTAMP && (signs & TCP_RST))
		count_reset(hash, signs >> 32);
	return to_member(ctx, m, at);
}

/* A connection begins. */
INLINE int first_packet(struct xdp_md *ctx, const struct vip *vip, __u64 hash, __u32 sequence)
{
	__u32 id = choose(vip, hash);
	__u32 at = vip->base + id;
	struct member *m = id ? bpf_map_lookup_elem(&members, &at) : NULL;
	if (!m) {
		count_reason(vip->number, REASON_NO_SERVER);
		return XDP_DROP;
	}
	count_opened(at, hash, sequence, LAST_TIMED);
	return to_member(ctx, m, at);
}

INLINE void count_walked(const struct packet *p, const struct vip *vip)
{
	if (UNLIKELY(p->walked))
		count_reason(vip->number, REASON_SLOW_OPTIONS);
}

/* In answer.h. */
GLOBAL int unserved(struct xdp_md *ctx, __u32 why);
GLOBAL int reset(struct xdp_md *ctx, __u32 tcp_offset);
/* In slow.h: what turns out not to take the fast path begins anew there. */
GLOBAL int slow_v4(struct xdp_md *ctx);
GLOBAL int slow_v6(struct xdp_md *ctx);

INLINE __u64 signs_of(const struct tcp *tcp)
{
	return (__u64)tcp->sequence << 32 | tcp->flags;
}

/* Of a connection whose server is down. */
INLINE int without_server(struct packet *p, const struct vip *vip, __u64 hash)
{
	count_reason(vip->number, REASON_STALE);
	count_closed(hash);
	return reset(p->ctx, (void *)p->tcp - (void *)p->eth);
}

/* A client ends a connection with this member. */
static __noinline void ends(__u64 hash, __u32 at)
{
	count_closed(hash);
	note_owner(hash, at);
}

/* From a client. */
INLINE int to_server(struct packet *p, const struct config *c, struct vip *vip,
		     const int family, const int straight)
{
	__u8 flags = p->tcp->flags;
	struct timestamps *t = p->timestamps;
	__u32 why;
	count_walked(p, vip);
	if (!straight && (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN) {
		__u64 hash = hash_from_client(p, c, vip, BY_SPREAD, family);
		if (t)
			return first_packet(p->ctx, vip, hash, p->tcp->sequence);
		return spread_out(p->ctx, vip, hash, REASON_SYN_NO_TIMESTAMP, signs_of(p->tcp));
	}
	why = REASON_NO_TIMESTAMP;
	if (!straight && !t)
		goto spread;

	why = REASON_FOREIGN;
	__u16 upper = bpf_ntohs(t->echo_upper);
	__u32 epoch = epoch_of(upper);
	__u64 hash = hash_from_client(p, c, vip, epoch & 1, family);
	struct permutation *perm = bpf_map_lookup_elem(&permutations, &epoch);
	if (UNLIKELY(!perm || !(c->salts & (1 << epoch))))
		goto spread;
	__u32 id = reveal(perm, hash, upper);
	if (UNLIKELY(id >= stride))
		goto spread;
	__u32 at = vip->base + id;
	struct member *m = bpf_map_lookup_elem(&members, &at);
	if (UNLIKELY(!m || m->state != MEMBER_LIVE)) {
		if (m && m->state == MEMBER_LOST) {
			count_reason(vip->number, REASON_NO_PORT);
			return XDP_DROP;
		}
		if (m && m->state == MEMBER_GONE)
			why = REASON_STALE;
		goto spread;
	}
	struct clock *clock = bpf_map_lookup_elem(&clocks, &at);
	if (UNLIKELY(m->flags & MEMBER_AGENT)) {
		/* It restores the echo itself. */
	} else if (LIKELY(clock && clock->heard)) {
		set_field(p->tcp, &t->echo_upper,
			  restore(upper, bpf_ntohs(t->echo_lower), clock->offset_ms, now_ms()));
	} else {
		/* A server takes an echo of zero for none (RFC 7323, 3.2), a wrong one for an RTT. */
		count_reason(vip->number, REASON_CLOCK_UNKNOWN);
		set_field(p->tcp, &t->echo_upper, 0);
		set_field(p->tcp, &t->echo_lower, 0);
	}
	if (UNLIKELY(flags & (TCP_FIN | TCP_RST)))
		ends(hash_from_client(p, c, vip, BY_SPREAD, family), at);
	return to_member(p->ctx, m, at);

spread:
	if (straight)
		return family == 4 ? slow_v4(p->ctx) : slow_v6(p->ctx);
	if (why == REASON_STALE)
		return without_server(p, vip, hash_from_client(p, c, vip, BY_SPREAD, family));
	return spread_out(p->ctx, vip, hash_from_client(p, c, vip, BY_SPREAD, family), why,
			  signs_of(p->tcp));
}

/* A server's clock, as its first reply tells it. One that moves is counted: now and then clocks drift apart,
 * but where each connection has a clock of its own (tcp_timestamps=1) it moves with nearly every reply. */
static __noinline void set_clock(struct clock *clock, __u32 offset, __u32 vip_number, __u32 at)
{
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	if (clock->heard) {
		count_reason(vip_number, REASON_CLOCK_MOVED);
		if (count && !dry_run)
			count->clock_moved++;
	}
	clock->offset_ms = offset;
	clock->heard = 1;
}

/* Writes the cookie into a server's packet, unless its agent has done that. */
INLINE void write_cookie(struct packet *p, const struct config *c, const struct vip *vip, __u32 source,
			 __u64 now, const int family, const int straight)
{
	struct timestamps *t = p->timestamps;
	count_walked(p, vip);
	if (!straight && !t) {
		count_reason(vip->number, REASON_REPLY_NO_TIMESTAMP);
		return;
	}
	if (source & SOURCE_AGENT)
		return;
	__u32 id = source, at = vip->base + id;
	struct clock *clock = bpf_map_lookup_elem(&clocks, &at);
	if (!clock)
		return;
	__u16 upper = bpf_ntohs(t->value_upper);
	__u32 real = (__u32)upper << 16 | bpf_ntohs(t->value_lower);
	__u32 offset = real - (__u32)now;
	/* Written only when the clock is new or has moved: the line stays shared between CPUs. */
	if (UNLIKELY(!clock->heard ||
	    offset - clock->offset_ms + OFFSET_TOLERANCE_MS > 2 * OFFSET_TOLERANCE_MS))
		set_clock(clock, offset, vip->number, at);
	__u32 epoch = epoch_now(c->switch_epoch, upper, clock->offset_ms, now);
	__u64 hash = hash_to_client(p, c, vip, epoch & 1, family);
	struct permutation *perm = bpf_map_lookup_elem(&permutations, &epoch);
	if (!perm)
		return;
	set_field(p->tcp, &t->value_upper, hide(perm, hash, id, epoch, upper));
}

INLINE void count_reply(struct packet *p, const struct config *c, const struct vip *vip, __u32 id,
			const int family, const int straight)
{
	__u8 flags = p->tcp->flags;
	__u32 at = vip->base + id;
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	if (count && !dry_run) {
		count->packets_out++;
		count->bytes_out += p->end - (void *)p->eth;
	}
	if (UNLIKELY(flags & (TCP_FIN | TCP_RST)))
		count_closed(hash_to_client(p, c, vip, BY_SPREAD, family));
	else if (!straight && (flags & TCP_SYN))
		count_answer(hash_to_client(p, c, vip, BY_SPREAD, family), at);
}

INLINE int malformed(struct xdp_md *ctx, const struct vip *vip)
{
	count_reason(vip->number, REASON_MALFORMED);
	return unserved(ctx, REASONS);
}

/* A segment in either direction. `straight`: its options begin NOP NOP TS, and it is no SYN; nothing may
 * be counted or changed before it is known to have a server. */
INLINE int segment(struct packet *p, const struct config *c, const int family, const int straight)
{
	struct tcp *tcp = p->tcp;
	struct vip *vip = find_vip(c, destination_of(p->ip, family), tcp->destination, family);
	if (vip && !straight && p->malformed)
		return malformed(p->ctx, vip);
	if (vip)
		return to_server(p, c, vip, family, straight);
	vip = find_vip(c, source_of(p->ip, family), tcp->source, family);
	if (!vip)
		return unserved(p->ctx, REASON_NO_SERVICE);
	if (!straight && p->malformed)
		return malformed(p->ctx, vip);
	__u32 source = find_source(c, vip, p->eth->from), id = id_of(source);
	if (UNLIKELY(!source)) {
		/* Without a cookie its client's answer could go to any server: sooner lost, for it is sent again. */
		count_reason(vip->number, REASON_UNKNOWN_SOURCE);
		return XDP_DROP;
	}
	if (UNLIKELY(*hops_of(p->ip, family) <= 1)) {
		count_reason(vip->number, REASON_TTL);
		return XDP_PASS;
	}
	__u64 now = now_ms();
	if (UNLIKELY(now < *asks_of(vip)))
		tell_owner(hash_to_client(p, c, vip, BY_SPREAD, family), vip->base + id);
	write_cookie(p, c, vip, source, now, family, straight);
	count_reply(p, c, vip, id, family, straight);
	/* The slow way has no stack left for this. */
	int known = straight ? by_known(p->ctx, &c->ways[family == 6], p->eth, p->end, now, family) : -1;
	return LIKELY(known >= 0) ? known : to_client(p->ctx, vip->number);
}
