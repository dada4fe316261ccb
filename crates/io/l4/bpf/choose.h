/* Which server gets a SYN. Only SYNs, and packets without a valid cookie, come here;
 * user space has filled the lists, so every policy is a look at one or two places of one. */
#pragma once
#include "maps.h"
#include "packet.h"

/* Past so many candidates, `least_connections` looks at a run of this length, from this CPU's turn on. */
#define LEAST_SCAN 64ULL

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
 * change. It lists servers that drain, too: one that only has connections left must get no SYN when
 * no other takes any. 0: none. */
INLINE __u32 spread(const struct vip *vip, __u64 hash, int begins)
{
	struct slots *s = slots_of(vip);
	if (!s || !s->spread_length || (begins && !s->policy_length))
		return 0;
	return listed(s->spread, place(hash, s->spread_length));
}

/* This CPU's next place in a list. */
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

/* How busy the server at a place is: open connections and the one that comes, by what one costs it. */
INLINE __u64 load_at(const struct vip *vip, const struct slots *s, __u32 place)
{
	__u32 at = vip->base + listed(s->policy, place);
	__u64 bounded = place;
	__s32 *now = bpf_map_lookup_elem(&open, &at);
	asm volatile("%0 &= %1" : "+r"(bounded) : "i"(MAX_SLOTS - 1));
	return (__u64)((now && *now > 0 ? *now : 0) + 1U) * s->cost[bounded];
}

/* All ones if a number is below zero, else 0: a branch taken at random costs more than a look-up. */
INLINE __u64 below_zero(__s64 number)
{
	asm volatile("%0 s>>= 63" : "+r"(number));
	return number;
}

/* The place of the least loaded from a place on; of equals the first, so that turns go round while servers
 * are equal. Least of numbers whose lowest bits are the distance. */
INLINE __u32 least_loaded(const struct vip *vip, const struct slots *s, __u32 start, __u32 length)
{
	__u64 least = ~0ULL >> 1;
	for (__u32 i = 0; i < LEAST_SCAN && i < length; i++) {
		__u32 at = start + i < length ? start + i : start + i - length;
		__s64 below = (load_at(vip, s, at) * LEAST_SCAN | i) - least;
		least += below & below_zero(below);
	}
	start += least % LEAST_SCAN;
	return start < length ? start : start - length;
}

/* A place other than this one, the same one for the same hash. */
INLINE __u32 another(__u32 one, __u64 hash, __u32 length)
{
	__s64 at = (__s64)one + 1 + place(hash, length - 1) - length;
	return at + (length & below_zero(at));
}

/* The less loaded of two places, drawn by one number: the connection's hash and a turn, so that one that
 * is sent again is drawn again. The second is drawn from the rest of the list. Where weights give a server
 * several places it may still be the first one's: then it is drawn anew, once. */
INLINE __u32 less_loaded(const struct vip *vip, const struct slots *s, __u64 hash, __u32 length)
{
	__u64 drawn = hash + take_turn(vip, ~0U) * 0x9e3779b97f4a7c15ULL;
	__u32 one = place(drawn, length), other = another(one, drawn << 32, length);
	if (UNLIKELY(listed(s->policy, one) == listed(s->policy, other)))
		other = another(one, drawn * 0xd1342543de82ef95ULL, length);
	return one ^ ((one ^ other) & below_zero(load_at(vip, s, other) - load_at(vip, s, one)));
}

/* The server of a connection that begins. 0: none. */
INLINE __u32 choose(const struct vip *vip, __u64 hash)
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
		at = less_loaded(vip, s, hash, length);
		break;
	case POLICY_LEAST:
		at = least_loaded(vip, s, take_turn(vip, length), length);
		break;
	default:
		at = place(hash, length);
	}
	return listed(s->policy, at);
}
