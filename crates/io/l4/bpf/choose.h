/* Which server gets a first packet. Only first packets, and packets without a valid cookie, come here;
 * user space has filled the lists, so every policy is a look at one or two places of one. */
#pragma once
#include "maps.h"
#include "packet.h"

/* Past so many candidates, `least_connections` looks at a random run of this length. */
#define LEAST_SCAN 64

/* Open connections a unit of weight, were there one more: what the least loaded has least of. */
GLOBAL __u64 load_of(const struct vip *vip, __u32 id)
{
	__u64 connections = 1, weight = 1;
	if (!vip)
		return 0;
	__u32 at = vip->base + id;
	__s64 *now = bpf_map_lookup_elem(&open, &at);
	struct member *member = bpf_map_lookup_elem(&members, &at);
	if (now && *now > 0)
		connections += *now;
	if (member && member->weight)
		weight = member->weight;
	return (connections << 16) / weight;
}

INLINE struct slots *slots_of(const struct vip *vip)
{
	__u32 at = vip->number * 2 + (vip->slot_half & 1);
	return bpf_map_lookup_elem(&slots, &at);
}

/* A place in a list of `length`; the same one for the same hash. */
INLINE __u32 place(__u64 hash, __u32 length)
{
	return ((hash >> 32) * length) >> 32;
}

/* A place of a list; the mask is written out so that the verifier sees a bound where the compiler
 * needs none. */
INLINE __u32 listed(const __u16 *list, __u32 at)
{
	__u64 bounded = at;
	asm volatile("%0 &= %1" : "+r"(bounded) : "i"(MAX_SLOTS - 1));
	return list[bounded];
}

/* The server of what carries no cookie: by a Maglev table, so that few connections move when servers
 * change. 0: none. */
static __noinline __u32 spread(const struct vip *vip, __u64 hash)
{
	struct slots *s = slots_of(vip);
	if (!s || !s->spread_length)
		return 0;
	return listed(s->spread, place(hash, s->spread_length));
}

INLINE __u32 take_turn(const struct vip *vip, __u32 length)
{
	__u32 number = vip->number;
	__u32 *turn = bpf_map_lookup_elem(&turns, &number);
	if (!turn)
		return 0;
	/* Each CPU goes round by itself; they begin at different places. */
	__u32 at = *turn;
	if (!dry_run)
		*turn = at + 1 < length ? at + 1 : 0;
	at += bpf_get_smp_processor_id() * 7919;
	return at < length ? at : at % length;
}

/* The better of `best` and the server at a place, each as load << 16 | id: the smaller. */
GLOBAL __u64 better(const struct vip *vip, __u32 at, __u64 best)
{
	struct slots *s;
	if (!vip || !(s = slots_of(vip)) || !s->policy_length)
		return best;
	__u32 id = listed(s->policy, at % s->policy_length);
	__u64 load = load_of(vip, id), most = ~0ULL >> 16;
	if (load > most)
		load = most;
	load = load << 16 | id;
	return load < best ? load : best;
}

static __noinline __u32 least_loaded(const struct vip *vip, __u32 length)
{
	__u64 best = ~0ULL;
	__u32 start = bpf_get_prandom_u32() & (MAX_SLOTS - 1);
	for (__u32 i = 0; i < LEAST_SCAN; i++) {
		if (i >= length)
			break;
		best = better(vip, start + i, best);
	}
	return best & 0xffff;
}

/* The server of a connection that begins. 0: none. */
static __noinline __u32 choose(const struct vip *vip, __u64 hash)
{
	struct slots *s = slots_of(vip);
	__u32 at, other, length;
	if (!s)
		return 0;
	length = s->policy_length;
	if (length == 0 || length > MAX_SLOTS)
		return 0;
	switch (vip->policy) {
	case POLICY_ROTATE:
		at = take_turn(vip, length);
		break;
	case POLICY_TWO:
		at = place((__u64)bpf_get_prandom_u32() << 32, length);
		other = place((__u64)bpf_get_prandom_u32() << 32, length);
		if (load_of(vip, listed(s->policy, other)) < load_of(vip, listed(s->policy, at)))
			at = other;
		break;
	case POLICY_LEAST:
		return least_loaded(vip, length);
	default:
		at = place(hash, length);
	}
	return listed(s->policy, at);
}

INLINE void add_open(__u32 at, __s64 change)
{
	__s64 *now = bpf_map_lookup_elem(&open, &at);
	/* A FIN sent twice must not make a server look idler than idle. */
	if (now && (change > 0 || *now > 0))
		__sync_fetch_and_add(now, change);
}
