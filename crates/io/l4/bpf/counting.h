/* Connections that are open, by server: begun by a SYN, and ended by a FIN or RST of the server's, or of the
 * client's with a valid cookie. `last` remembers what connections did last, so that what is sent again is counted
 * once, and what ends only if it is known: no guess makes a server look idle. A SYN whose server repeats its SYN-ACK
 * was not answered, as a spoofed one: it counts no longer. A connection whose place another one takes is
 * forgotten; the daemon counts by what is remembered (balancer/recount.rs), so that nothing is counted for
 * ever, neither a client that lost its power nor half a handshake. */
#pragma once
#include "maps.h"
#include <bpf/bpf_endian.h>
#include "cookie.h"

/* What a connection did last: LAST_OPEN, its member, whether its SYN had timestamps, whether the server has answered
 * that, the ends of its sequence number, the end of the connection's hash. A SYN, FIN or RST that is sent again is
 * known by it. */
#define LAST_OPEN 1ULL
#define LAST_AT(event) ((__u32)(event) >> 1 & ((1 << 22) - 1))
#define LAST_TIMED (1ULL << 23)
#define LAST_ANSWERED (1ULL << 24)
#define LAST_SYN(event) ((event) >> 25 & 0x7fff)
/* In steps of 16 MB. */
#define LAST_HIGH(event) ((event) >> 32 & 255)
#define LAST_HASH(event) ((event) >> 40)

INLINE __u64 event_of(__u64 hash, __u32 sequence, __u32 at, __u64 timed)
{
	__u64 ends = (__u64)(sequence >> 24) << 32 | (sequence & 127) << 25;
	return hash << 40 | ends | timed | at << 1 | LAST_OPEN;
}

INLINE int is_event_of(__u64 event, __u64 hash)
{
	return LAST_HASH(event) == LAST_HASH(hash << 40);
}

INLINE __u64 *last_of(__u64 hash)
{
	__u32 at = hash >> (64 - LAST_BITS), row = at / LAST_ROW;
	__u64 place = at;
	struct last *l = bpf_map_lookup_elem(&connections, &row);
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

/* `hash` is by config.spread, in either direction; `timed` is LAST_TIMED or 0. A SYN that is sent again is counted
 * where it goes now, and no longer where it went before; one with another sequence number is of the next connection
 * between the same ends, and the end of the one before was not seen. */
INLINE void count_opened(__u32 at, __u64 hash, __be32 sequence, __u64 timed)
{
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	__u64 *event = last_of(hash), now = event_of(hash, bpf_ntohl(sequence), at, timed);
	if (dry_run || !count || !event)
		return;
	__u64 was = *event;
	*event = now;
	if (UNLIKELY(LAST_HASH(was) == LAST_HASH(now))) {
		__u32 before = LAST_AT(was);
		struct member_count *moved = bpf_map_lookup_elem(&counts, &before);
		if (was & LAST_OPEN) {
			add_open(before, -1);
			if (moved && LAST_SYN(was) == LAST_SYN(now))
				moved->opened--;
		}
	}
	count_more(count, at);
}

/* Of both ends' last packets, on two CPUs at once, one is counted. */
INLINE int end(__u64 *event, __u64 was)
{
	if (__sync_val_compare_and_swap(event, was, was & ~LAST_OPEN) != was)
		return 0;
	count_less(LAST_AT(was));
	return 1;
}

static __noinline void count_closed(__u64 hash)
{
	__u64 *event = last_of(hash);
	if (dry_run || !event)
		return;
	__u64 was = *event;
	if (is_event_of(was, hash) && (was & LAST_OPEN))
		end(event, was);
}

/* A client's RST without timestamps shows by its sequence number alone whose it is: within 16 MB of its SYN's, where
 * that had none either. Of connections with timestamps it ends none: it may be forged, and a FIN with a cookie comes
 * before it. */
static __noinline void count_reset(__u64 hash, __be32 sequence)
{
	__u64 *event = last_of(hash);
	if (dry_run || !event)
		return;
	__u64 was = *event;
	__u32 steps = ((bpf_ntohl(sequence) >> 24) - LAST_HIGH(was)) & 255;
	if (is_event_of(was, hash) && (was & (LAST_OPEN | LAST_TIMED)) == LAST_OPEN && steps <= 1)
		end(event, was);
}

/* A server's SYN-ACK: the second one says that the first was not answered. Under SYN cookies there is no second. */
static __noinline void count_answer(__u64 hash, __u32 at)
{
	__u64 *event = last_of(hash);
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	if (dry_run || !event || !count)
		return;
	__u64 was = *event;
	if (!is_event_of(was, hash) || !(was & LAST_OPEN) || LAST_AT(was) != at)
		return;
	if (was & LAST_ANSWERED)
		count->unanswered += end(event, was);
	else
		__sync_val_compare_and_swap(event, was, was | LAST_ANSWERED);
}
