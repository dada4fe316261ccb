/* Which server gets a first packet. Only first packets, and packets without a valid cookie, come here;
 * user space has filled the lists, so every policy is a look at one or two places of one. */
#pragma once
#include "maps.h"
#include "packet.h"

/* Past so many candidates, `least_connections` looks at a random run of this length. */
#define LEAST_SCAN 64

struct load {
	__u64 connections; /* open ones, and one more */
	__u64 weight;
};

INLINE struct load load_of(const struct vip *vip, __u32 id)
{
	struct load load = {1, 1};
	__u32 at = vip->base + id;
	__s64 *now = bpf_map_lookup_elem(&open, &at);
	struct member *member = bpf_map_lookup_elem(&members, &at);
	if (now && *now > 0)
		load.connections += *now;
	if (member && member->weight)
		load.weight = member->weight;
	return load;
}

/* Fewer connections a unit of weight; by products, for a division costs more than both look-ups. */
INLINE int lighter(struct load one, struct load other)
{
	return one.connections * other.weight < other.connections * one.weight;
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

/* The least loaded from a place of the list on. By itself to the verifier; a call for each server would
 * cost more than looking at it. */
GLOBAL __u32 least_loaded(const struct vip *vip, __u32 start)
{
	struct slots *s;
	struct load least = {~0U, 1};
	__u32 best = 0, length;
	if (!vip || !(s = slots_of(vip)))
		return 0;
	length = s->policy_length;
	for (__u32 i = 0; i < LEAST_SCAN && i < length; i++) {
		__u32 at = start + i < length ? start + i : start + i - length;
		__u32 id = listed(s->policy, at);
		struct load load = load_of(vip, id);
		if (lighter(load, least)) {
			least = load;
			best = id;
		}
	}
	return best;
}

/* The less loaded of two places, drawn by one number: the connection's hash and a random one. */
INLINE __u32 less_loaded(const struct vip *vip, const struct slots *s, __u64 hash, __u32 length)
{
	__u64 drawn = hash + (bpf_get_prandom_u32() * 0x9e3779b97f4a7c15ULL);
	__u32 one = listed(s->policy, place(drawn, length));
	__u32 other = listed(s->policy, place(drawn << 32, length));
	return lighter(load_of(vip, other), load_of(vip, one)) ? other : one;
}

/* The server of a connection that begins. 0: none. */
static __noinline __u32 choose(const struct vip *vip, __u64 hash)
{
	struct slots *s = slots_of(vip);
	__u32 at, length;
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
		return less_loaded(vip, s, hash, length);
	case POLICY_LEAST:
		return least_loaded(vip, place((__u64)bpf_get_prandom_u32() << 32, length));
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
