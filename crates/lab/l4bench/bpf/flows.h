/* Packets made in the kernel: a preamble that turns the one packet of a test run (BPF_PROG_TEST_RUN
 * repeats on the packet as the program left it) back into what it was, for another flow each time.
 * Flows are computed from the run's number, never read from a table: a table would measure the cache.
 * Fields are written as wide as the balancer reads them, so that no load waits for two stores.
 * A copy of the program without a balancer measures what the preamble costs. */
#pragma once
#include "balancer.h"

struct bench {
	__u64 turn;      /* of this run */
	__u64 flow_mask; /* number of flows less one; a power of two less one */
	__u32 id_mask;   /* number of servers less one; their ids begin at 1 */
	__u32 field_at;  /* where the upper half of the timestamp in question is */
	__u64 missed;    /* packets that a connection table did not find */
	__u64 apart;     /* not 0: each flow has a client of its own */
};

MAP(bench, BPF_MAP_TYPE_ARRAY, 1, struct bench);

enum kind {
	PLAIN,       /* from a client, nothing but its address changes */
	ESTABLISHED, /* from a client, with its cookie */
	FORGED,      /* from a client, with a number for a cookie */
	REPLY,       /* from a server */
};

/* Keeps the compiler from carrying over to the balancer what it knows of the preamble. */
#define FORGET(ctx) asm volatile("" : "+r"(ctx) : : "memory")

INLINE __u64 next_flow(struct bench *b)
{
	/* An odd factor permutes the flows, so that neighbours in time are no neighbours in memory. */
	return b->turn++ * 0x9e3779b97f4a7c15ULL & b->flow_mask;
}

/* splitmix64's finish. */
INLINE __u64 scattered(__u64 number)
{
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ULL;
	number = (number ^ number >> 27) * 0x94d049bb133111ebULL;
	return number ^ number >> 31;
}

/* An IPv4 address, or the third word of an IPv6 one: 16,384 flows have the same, or each its own, scattered
 * over 10.64.0.0/10. */
INLINE __u32 client_of(const struct bench *b, __u64 number, const int family)
{
	if (b->apart)
		return bpf_htonl(0x0a400000 | (scattered(number) & 0x3fffff));
	return family == 4 ? 0x0a | (__u32)(number >> 14) << 8 : number >> 14;
}

INLINE void write_upper(struct xdp_md *ctx, const struct bench *b, __u16 upper, int lower)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be16 *field = data + (b->field_at & 127);
	if ((void *)(field + 2) > end)
		return;
	field[0] = bpf_htons(upper);
	if (lower >= 0)
		field[1] = bpf_htons(lower);
}

INLINE void write_cookie_of(struct xdp_md *ctx, struct bench *b, const struct flow *flow,
			    const int words, __u64 number)
{
	__u32 zero = 0, epoch = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	struct permutation *perm = bpf_map_lookup_elem(&permutations, &epoch);
	if (c && perm)
		write_upper(ctx, b,
			    hide(perm, flow_hash(&c->salt[0].key, flow, words),
				 1 + (number & b->id_mask), 0, now_ms() >> 16),
			    -1);
}

/* A server's address is 02:00:00:00:02:ID. */
INLINE void write_source(struct ethernet *eth, __u32 id)
{
	*(__u16 *)eth->from = 2;
	store32(eth->from + 2, id << 24 | 2 << 16);
}

INLINE void write_rest(struct xdp_md *ctx, struct bench *b, const struct flow *flow,
		       const int words, const int kind, __u64 number)
{
	if (kind == ESTABLISHED)
		write_cookie_of(ctx, b, flow, words, number);
	if (kind == FORGED)
		write_upper(ctx, b, scattered(b->turn), -1);
	if (kind == REPLY) {
		__u32 now = now_ms();
		write_upper(ctx, b, now >> 16, now & 0xffff);
	}
}

INLINE int prepare_v4(struct xdp_md *ctx, const int kind)
{
	__u32 zero = 0;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct tcp *tcp = (void *)(ip + 1);
	struct bench *b = bpf_map_lookup_elem(&bench, &zero);
	if (!b || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return -1;
	__u64 number = next_flow(b);
	__u32 client = client_of(b, number, 4), port = 0x4000 | (number & 0x3fff);
	if (kind == REPLY) {
		__u32 vip_port = tcp->source;
		write_source(eth, 1 + (number & b->id_mask));
		store32(&ip->fragment, bpf_htonl(0x40000000 | 64 << 8 | IPPROTO_TCP));
		ip->destination = client;
		*(__u32 *)tcp = port << 16 | vip_port;
	} else {
		__u32 vip_port = tcp->destination;
		ip->source = client;
		*(__u32 *)tcp = vip_port << 16 | port;
	}
	struct flow flow = {.word = {client, ip->destination, *(__u32 *)tcp, IPPROTO_TCP | 2 << 8}};
	write_rest(ctx, b, &flow, 4, kind, number);
	return 0;
}

INLINE int prepare_v6(struct xdp_md *ctx, const int kind)
{
	__u32 zero = 0;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv6 *ip = (void *)(eth + 1);
	struct tcp *tcp = (void *)(ip + 1);
	struct bench *b = bpf_map_lookup_elem(&bench, &zero);
	if (!b || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return -1;
	__u64 number = next_flow(b);
	__u32 client = client_of(b, number, 6), port = 0x4000 | (number & 0x3fff);
	if (kind == REPLY) {
		__u32 vip_port = tcp->source;
		write_source(eth, 1 + (number & b->id_mask));
		ip->hop_limit = 64;
		ip->destination[2] = client;
		*(__u32 *)tcp = port << 16 | vip_port;
	} else {
		__u32 vip_port = tcp->destination;
		ip->source[2] = client;
		*(__u32 *)tcp = vip_port << 16 | port;
	}
	struct flow flow = {.word = {ip->source[0], ip->source[1], ip->source[2], ip->source[3],
				     ip->destination[0], ip->destination[1], ip->destination[2],
				     ip->destination[3], *(__u32 *)tcp, IPPROTO_TCP | 8 << 8}};
	write_rest(ctx, b, &flow, 10, kind, number);
	return 0;
}
