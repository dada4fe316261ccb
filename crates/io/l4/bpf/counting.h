/* Connections that are open, by server: begun and not ended, as their first and last packets tell. `last`
 * remembers what connections did last, so that what is sent again is counted once, and what ends only if it
 * is known: no guessed cookie makes a server look idle. A connection whose place another one takes is
 * forgotten; the daemon counts by what is remembered (balancer/recount.rs), so that nothing is counted for
 * ever, neither a client that lost its power nor half a handshake. */
#pragma once
#include "maps.h"
#include "cookie.h"

/* What a connection did last: LAST_OPEN, its member, the end of its SYN's sequence number, the end of its
 * hash. A SYN, FIN or RST that is sent again is known by it. */
#define LAST_OPEN 1
#define LAST_AT(event) ((__u32)(event) >> 1 & ((1 << 22) - 1))
#define LAST_SYN(event) ((event) >> 23 & 511)
#define LAST_HASH(event) ((event) >> 32)

INLINE __u64 event_of(__u64 hash, __u32 sequence, __u32 at, __u32 is_open)
{
	return hash << 32 | (__u64)(sequence >> 23) << 23 | at << 1 | is_open;
}

INLINE __u64 *last_of(__u64 hash)
{
	__u32 at = hash >> (64 - LAST_BITS), row = at / LAST_ROW;
	__u64 place = at;
	struct last *l = bpf_map_lookup_elem(&last, &row);
	asm volatile("%0 &= %1" : "+r"(place) : "i"(LAST_ROW - 1));
	return l ? &l->event[place] : NULL;
}

INLINE void add_open(__u32 at, __s32 change)
{
	__s32 *now = bpf_map_lookup_elem(&open, &at);
	/* After user space has set it to 0, what had begun before may still end. */
	if (now && (change > 0 || *now > 0))
		__sync_fetch_and_add(now, change);
}

INLINE void count_more(struct member_count *count, __u32 at)
{
	count->opened++;
	add_open(at, 1);
}

static __noinline void count_less(__u32 at)
{
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	if (count)
		count->closed++;
	add_open(at, -1);
}

/* `hash` is by config.spread, in either direction. A SYN that is sent again is counted where it goes now, and
 * no longer where it went before; one with another sequence number is of the next connection between the same
 * ends, and the end of the one before was not seen. */
INLINE void count_opened(__u32 at, __u64 hash, __u32 sequence)
{
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	__u64 *event = last_of(hash), now = event_of(hash, sequence, at, LAST_OPEN);
	if (dry_run || !count || !event)
		return;
	__u64 was = *event;
	*event = now;
	if (UNLIKELY(LAST_HASH(was) == LAST_HASH(now) && (was & LAST_OPEN))) {
		__u32 before = LAST_AT(was);
		struct member_count *moved = bpf_map_lookup_elem(&counts, &before);
		add_open(before, -1);
		if (moved && LAST_SYN(was) == LAST_SYN(now))
			moved->opened--;
	}
	count_more(count, at);
}

/* Of both ends' last packets, on two CPUs at once, one is counted. */
static __noinline void count_closed(__u64 hash)
{
	__u64 *event = last_of(hash);
	if (dry_run || !event)
		return;
	__u64 was = *event, ended = event_of(hash, 0, LAST_AT(was), 0);
	if (LAST_HASH(was) != LAST_HASH(ended) || !(was & LAST_OPEN))
		return;
	if (__sync_val_compare_and_swap(event, was, ended) == was)
		count_less(LAST_AT(was));
}
